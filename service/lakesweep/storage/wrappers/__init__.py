"""One concern each, around any store: `registry` puts them on in a fixed order."""
