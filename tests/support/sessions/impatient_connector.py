"""The connector, which reads an older table again for a second where the connector itself does so for half a minute."""

from typing import Final

from connector import __main__ as command
from connector.iceberg.commits import retry_commits

RETRY_FOR: Final = 1.0  # seconds

if __name__ == "__main__":
    vars(retry_commits)["RETRY_FOR"] = RETRY_FOR  # before other modules import it
    command.run()
