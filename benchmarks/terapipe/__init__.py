"""TeraPipe's slicing on recorded tables, beside the public code's schemes and the dissertation's."""
