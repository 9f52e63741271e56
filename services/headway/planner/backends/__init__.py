"""Which backend runs which operators of a captured model (Collage, thesis chapter 2). Pure."""
