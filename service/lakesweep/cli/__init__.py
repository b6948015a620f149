"""The `lakesweep` command. It reads arguments and shows results; everything it knows comes from `daemon.app`.

`main` lists the commands, one file each. `session` opens the settings and the application and turns every error
into one sentence and an exit code. Standard output holds results only; all else goes to standard error.
"""
