import base64
import hashlib

from harness.pages.style import POLICY, SCRIPT, STYLE


def test_the_policy_allows_this_style_and_this_script_alone():
    for text in (STYLE, SCRIPT):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert "unsafe" not in POLICY
