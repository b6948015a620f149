"""What the Spark UI says of jobs, stages and plans, from the API that it is made of."""

from __future__ import annotations

import json
import re
import urllib.request


def status(session, what):
    """What the UI shows, from the API that it is made of."""
    context = session.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def operators(description):
    """Each operator of a formatted plan: its name, the first below it in the tree, and its details, by its number.

    Adaptive execution shows the final plan first. What follows is the plan that Spark began with.
    """
    tree, _, details = description.partition("\n\n\n")
    final = tree.partition("== Initial Plan ==")[0]
    found, above = {}, []
    for line in final.splitlines():
        if match := re.match(r"([ :+*-]*)(?:\* )?(\w[\w ]*?) *\((\d+)\)", line):
            depth, name, number = len(match.group(1)), match.group(2), int(match.group(3))
            while above and above[-1][0] >= depth:
                above.pop()
            found[number] = {"name": name, "below": None, "details": ""}
            if above and found[above[-1][1]]["below"] is None:
                found[above[-1][1]]["below"] = number
            above.append((depth, number))
    for block in details.split("\n\n"):
        if (match := re.match(r"\s*\((\d+)\) ", block)) and int(match.group(1)) in found:
            found[int(match.group(1))]["details"] = block
    return found


def single_sorts(description):
    """The details of sorts whose rows all come from one partition, by an exchange that says so."""
    all_of_them = operators(description)

    def gathered(number):
        one = all_of_them.get(number)
        if one is None:
            return False
        if "Exchange" in one["name"]:
            return "SinglePartition" in one["details"]
        passes_on = ("Sort", "Project", "Filter", "ColumnarToRow", "InputAdapter", "WholeStageCodegen")
        passes_on += ("AQEShuffleRead", "ShuffleQueryStage", "TakeOrderedAndProject")
        return one["name"].startswith(passes_on) and gathered(one["below"])

    return [one["details"] for one in all_of_them.values() if one["name"] == "Sort" and gathered(one["below"])]


def plans_of(queries, jobs):
    """The final plans of the queries that these jobs belong to."""
    mine = {one["jobId"] for one in jobs}
    return [one["planDescription"] for one in queries if mine & {*one["successJobIds"], *one["failedJobIds"]}]


QUERIES = "sql?details=true&planDescription=true&length=10000"
