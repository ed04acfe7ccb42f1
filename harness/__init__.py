"""A declarative harness for agentic post-training rounds of language models."""
