"""The workers of one pod: a process that starts them, keeps them alive and drains them before the pod ends."""
