"""The command line: a table, a target and a metric in; a model, predictions or a leaderboard out."""
