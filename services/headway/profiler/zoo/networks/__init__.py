"""The networks of the families as torch modules, none of which has control flow that depends on data, nor dropout."""
