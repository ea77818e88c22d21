"""The commands below `relkit data`, `hang`, `stacks` and `straggler`, one file each."""
