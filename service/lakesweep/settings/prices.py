"""What the stores charge, for estimates and reports. The defaults are the list prices of S3 Standard in us-east-1."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakesweep.model.requests import Prices
from lakesweep.settings.values import Group, Price

Currency = Annotated[str, Field(min_length=1, max_length=8, pattern=r"^\S+$")]


class PriceSettings(Group):
    """`[prices]`: what the stores charge, for the estimates of `plan`, `run` and `tables`. Nothing is decided by it.
    Requests to a local disk are free, except for those whose price is set here."""

    currency: Currency = "USD"
    """What the prices are in. Only shown."""
    list_per_1000: Price = 0.005
    """A thousand LIST requests, each of up to a thousand objects."""
    get_per_1000: Price = 0.0004
    """A thousand GET requests."""
    head_per_1000: Price = 0.0004
    """A thousand HEAD requests."""
    put_per_1000: Price = 0.005
    """A thousand PUT, COPY and POST requests."""
    delete_per_1000: Price = 0.0
    """A thousand DELETE requests. S3 charges nothing for them."""
    read_per_gb: Price = 0.0
    """A GB (10^9 bytes) that is read. Free on S3 within one region, but not across regions or clouds."""
    storage_per_gb_month: Price = 0.023
    """A GB (10^9 bytes) stored for a month."""

    def of_requests(self, *, local: bool) -> Prices:
        """Defaults are an object store's; who sets a price for a mounted disk means it."""

        def price(name: str) -> float:
            return 0.0 if local and name not in self.model_fields_set else float(getattr(self, name))

        return Prices(
            list=price("list_per_1000"),
            get=price("get_per_1000"),
            head=price("head_per_1000"),
            put=price("put_per_1000"),
            delete=price("delete_per_1000"),
            read_gb=price("read_per_gb"),
            currency=self.currency,
        )
