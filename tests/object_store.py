"""A real S3 server on loopback for tests: moto's, in a thread of this process."""

import logging
import os
from contextlib import contextmanager
from unittest.mock import patch

import httpx

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server(*buckets):
    """Serve empty buckets, and let the environment name the server.

    All servers of a process share what they hold, so it is dropped first: one at a time.
    """
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        httpx.post(f"{url}/moto-api/reset").raise_for_status()
        with patch.dict(os.environ, {**ENVIRONMENT, "AWS_ENDPOINT_URL": url}):
            system = fs.S3FileSystem(endpoint_override=url, allow_bucket_creation=True)
            for bucket in buckets:
                system.create_dir(bucket)
            yield url
    finally:
        server.stop()
