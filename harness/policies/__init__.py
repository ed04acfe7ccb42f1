"""Policies: models as artifacts, serializers, inference settings and engines."""
