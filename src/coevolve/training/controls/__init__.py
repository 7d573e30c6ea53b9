"""Control arms: what a method gains when its rewards, or its judge, are not its own."""
