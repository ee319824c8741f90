"""The flight recorder: every input of the engine on disk, in files that are bounded in size and age."""
