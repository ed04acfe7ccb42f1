"""C: feedback becomes credit for tokens. No model is among its inputs."""
