"""Where the full system loses to a simpler one."""
