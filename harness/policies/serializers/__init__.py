"""Serializers: messages to tokens and sampled tokens to actions; part of ι."""
