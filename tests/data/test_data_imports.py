import subprocess
import sys


def test_importing_the_room_imports_no_heavy_package():
    code = (
        "import sys, vitral.data; "
        "print(sorted({'pooch', 'requests', 'tokenizers', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
