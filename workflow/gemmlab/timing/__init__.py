"""What the bench stage is made of: how a launch is timed, against what, and when a figure can be trusted."""
