"""The commands: each module has one, `command`, which reads options, calls a tool and shows what that found."""
