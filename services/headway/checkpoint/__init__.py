"""Model directories as Hugging Face has them, read and written by whoever serves, trains or exports one."""
