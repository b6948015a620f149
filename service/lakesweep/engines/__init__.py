"""Engines find orphans: they list, then mark, then judge. Every engine gives the same plan for the same table.

`plan.sql` is the plan they share and `cleanup.classify` the judgement; an engine only decides where the work runs.
`registry` chooses one. Engines only read: no engine ever has a Deleter.
"""
