"""TeraPipe: pipelines along the tokens of a sequence (dissertation chapter 2)."""
