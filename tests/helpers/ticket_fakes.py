"""Ticket servers on loopback that hold to the vendors' documented contracts, and can fail in the ways that networks do.

Each refuses what the real one refuses: a wrong token, a missing header, a body of another shape, an unknown ticket. ``faults`` are used up
one by one by the requests that they match: ``(method, part of the path, what)`` with ``what`` a status and headers, "drop" (the
connection ends before anything is done) or "lose" (it is done, and the connection ends before the answer).
"""

from __future__ import annotations

import base64
import email.parser
import email.policy
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback import serving


class RefusedError(Exception):
    def __init__(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        self.status, self.value, self.headers = status, value if value is not None else {"message": f"status {status}"}, headers or {}


class Request:
    def __init__(self, method: str, path: str, headers: Any, data: bytes) -> None:
        parts = urlsplit(path)
        self.method, self.raw_path, self.path = method, parts.path, unquote(parts.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.headers, self.data = headers, data

    def json(self) -> Any:
        if self.headers.get("Content-Type") != "application/json":
            raise RefusedError(415, {"message": "not JSON"})
        return json.loads(self.data)

    def form(self) -> dict[str, tuple[str | None, bytes, str]]:
        """Name -> file name, content, type; read by the standard library's mail parser."""
        kind = self.headers.get("Content-Type", "")
        if not kind.startswith("multipart/form-data"):
            raise RefusedError(415, {"message": "not a form"})
        head = f"Content-Type: {kind}\r\n\r\n".encode()
        parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.data)
        cookies = {}
        for part in parsed.iter_parts():
            name = part.get_param("name", header="content-disposition")
            cookies[str(name)] = (part.get_filename(), part.get_payload(decode=True), part.get_content_type())
        return cookies


class Fake:
    """State, routes and faults. Subclasses add methods named in ``routes``: (method, pattern of the path) -> function."""

    token = "s3cret-token-value"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.faults: list[tuple[str, str, Any]] = []
        self.lock = threading.RLock()
        self.ids = itertools.count(10001)
        self.meanwhile: Callable[[Request], None] | None = None
        self.url = ""

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        raise NotImplementedError

    def authorize(self, request: Request) -> None:
        raise NotImplementedError

    def answer(self, request: Request) -> tuple[int, Any, dict[str, str]]:
        try:
            self.authorize(request)
            for method, pattern, function in self.routes():
                match = re.fullmatch(pattern, request.path)
                if method == request.method and match:
                    with self.lock:
                        status, value = function(request, *match.groups())
                    return status, value, {}
            raise RefusedError(404)
        except RefusedError as error:
            return error.status, error.value, error.headers

    def sent(self, method: str, part: str = "") -> list[Request]:
        return [one for one in self.requests if one.method == method and part in one.path]

    @contextmanager
    def serving(self) -> Iterator[Any]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(self.command, self.path, self.headers, self.rfile.read(length))
                with fake.lock:
                    fake.requests.append(request)
                    fault = next((one for one in fake.faults if one[0] == request.method and one[1] in request.path), None)
                    if fault:
                        fake.faults.remove(fault)
                what = fault[2] if fault else None
                if what == "drop":
                    self.close_connection = True
                    self.connection.close()
                    return
                if isinstance(what, tuple):
                    status, headers, value = what[0], what[1], what[2] if len(what) > 2 else {"message": "not now"}
                else:
                    status, value, headers = fake.answer(request)
                if what == "lose":
                    self.close_connection = True
                    self.connection.close()
                    return
                data = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                for name, text in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        with serving(Handler) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


class FakeJira(Fake):
    """Jira's REST API 2 as developer.atlassian.com describes it."""

    cloud = True
    limit = 10_000_000

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.issues: dict[str, dict[str, Any]] = {"PROJ-12": {"labels": []}}
        self.author = {"accountId": "me"}

    def authorize(self, request: Request) -> None:
        wanted = "Basic " + base64.b64encode(f"me@example.org:{self.token}".encode()).decode() if self.cloud else f"Bearer {self.token}"
        if request.headers.get("Authorization") != wanted:
            raise RefusedError(401, b"<html><head><title>Unauthorized (401)</title></head></html>", {"Content-Type": "text/html"})

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        issue = r"/rest/api/2/issue/([A-Z]+-[0-9]+)"
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", "/rest/api/2/myself", lambda r: (200, self.author)),
            ("GET", "/rest/api/2/attachment/meta", lambda r: (200, {"enabled": True, "uploadLimit": self.limit})),
            ("GET", issue, self._issue),
            ("GET", f"{issue}/comment", self._comments),
            ("POST", f"{issue}/comment", self._add),
            ("PUT", f"{issue}/comment/([0-9]+)", self._change),
            ("DELETE", f"{issue}/comment/([0-9]+)", self._remove),
            ("POST", f"{issue}/attachments", self._attach),
            ("DELETE", "/rest/api/2/attachment/([0-9]+)", lambda r, n: (204, self.files.pop(n) and None)),
            ("POST", "/rest/api/2/issue", self._open),
            ("GET", "/rest/api/2/search/jql" if self.cloud else "/rest/api/2/search", self._search),
        ]
        return routes

    def _known(self, key: str) -> None:
        if key not in self.issues:
            raise RefusedError(404, {"errorMessages": ["Issue does not exist or you do not have permission to see it."], "errors": {}})

    def _issue(self, request: Request, key: str) -> tuple[int, Any]:
        self._known(key)
        files = [{"id": n, "filename": f["name"], "author": f["author"], "size": len(f["data"])} for n, f in self.files.items()]
        return 200, {"key": key, "fields": {"attachment": files} if request.query.get("fields") == "attachment" else {"summary": "x"}}

    def _comments(self, request: Request, key: str) -> tuple[int, Any]:
        self._known(key)
        first, most = int(request.query["startAt"]), min(int(request.query["maxResults"]), 50)
        listed = [{"id": n, "author": c["author"], "body": c["body"]} for n, c in sorted(self.written.items(), key=lambda one: int(one[0]))]
        return 200, {"comments": listed[first : first + most], "total": len(listed), "startAt": first, "maxResults": most}

    def _body(self, request: Request) -> str:
        body = request.json()["body"]
        if len(body) > 32_767:
            raise RefusedError(
                400,
                {
                    "errorMessages": [],
                    "errors": {"comment": "The entered text is too long. It exceeds the allowed limit of 32,767 characters."},
                },
            )
        return str(body).replace("\n", "\r\n")

    def _add(self, request: Request, key: str) -> tuple[int, Any]:
        self._known(key)
        number = str(next(self.ids))
        self.written[number] = {"author": self.author, "body": self._body(request)}
        return 201, {"id": number}

    def _change(self, request: Request, key: str, number: str) -> tuple[int, Any]:
        if self.written[number]["author"] != self.author:
            raise RefusedError(400, {"errorMessages": ["You do not have the permission for this comment."]})
        self.written[number]["body"] = self._body(request)
        return 200, {"id": number}

    def _remove(self, request: Request, key: str, number: str) -> tuple[int, Any]:
        if number not in self.written:
            raise RefusedError(404)
        del self.written[number]
        return 204, None

    def _attach(self, request: Request, key: str) -> tuple[int, Any]:
        self._known(key)
        if request.headers.get("X-Atlassian-Token") != "no-check":
            raise RefusedError(403, b"XSRF check failed", {"Content-Type": "text/plain"})
        name, data, _ = request.form()["file"]
        if len(data) > self.limit:
            raise RefusedError(413, {"errorMessages": ["The attachment is too large."]})
        number = str(next(self.ids))
        self.files[number] = {"name": name, "data": data, "author": self.author}
        return 200, [{"id": number, "filename": name}]

    def _open(self, request: Request) -> tuple[int, Any]:
        fields = request.json()["fields"]
        if (
            fields["project"] != {"key": "PROJ"}
            or not fields["summary"]
            or len(fields["summary"]) > 255
            or any(" " in one for one in fields["labels"])
        ):
            raise RefusedError(400, {"errors": {"project": "project is required"}})
        key = f"PROJ-{len(self.issues) + 12}"
        self.issues[key] = {"labels": fields["labels"], "fields": fields}
        return 201, {"id": "1", "key": key}

    def _search(self, request: Request) -> tuple[int, Any]:
        wanted = re.search(r'project = "PROJ" AND labels = "([^"]+)" AND statusCategory != Done', request.query["jql"])
        assert wanted
        return 200, {"issues": [{"key": key} for key, one in self.issues.items() if wanted[1] in one["labels"]]}


class FakeJiraServer(FakeJira):
    """Data Center: a personal access token, users with key and name."""

    cloud = False

    def __init__(self) -> None:
        super().__init__()
        self.author = {"key": "JIRAUSER1", "name": "bot"}


class FakeGitLab(Fake):
    """GitLab's REST API 4 as docs.gitlab.com describes it: issues, merge requests, notes, uploads."""

    limit = 100 << 20
    project = "group/sub/project"

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.issues: dict[str, dict[str, Any]] = {"7": {"description": ""}}
        self.user_known = True

    def authorize(self, request: Request) -> None:
        if request.headers.get("PRIVATE-TOKEN") != self.token:
            raise RefusedError(401, {"message": "401 Unauthorized"})
        if "%2F" not in request.raw_path and "/projects/" in request.raw_path:
            raise RefusedError(404, {"error": "404 Not Found"})

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        project = f"/api/v4/projects/{self.project}"
        ticket = f"{project}/(?:issues|merge_requests)/([0-9]+)"
        return [
            ("GET", "/api/v4/user", lambda r: (200, {"id": 5}) if self.user_known else (403, {"message": "403 Forbidden"})),
            ("GET", "/api/v4/application/settings", lambda r: (403, {"message": "403 Forbidden"})),
            ("GET", ticket, self._ticket),
            ("GET", f"{ticket}/notes", self._notes),
            ("POST", f"{ticket}/notes", self._add),
            ("PUT", f"{ticket}/notes/([0-9]+)", self._change),
            ("DELETE", f"{ticket}/notes/([0-9]+)", self._remove),
            ("POST", f"{project}/uploads", self._upload),
            ("DELETE", f"{project}/uploads/([0-9a-f]+)/(.+)", self._discard),
            ("GET", f"{project}/issues", self._search),
            ("POST", f"{project}/issues", self._open),
        ]

    def _ticket(self, request: Request, number: str) -> tuple[int, Any]:
        if number not in self.issues:
            raise RefusedError(404, {"message": "404 Not found"})
        return 200, {"iid": int(number)}

    def _notes(self, request: Request, number: str) -> tuple[int, Any]:
        self._ticket(request, number)
        page, most = int(request.query["page"]), int(request.query["per_page"])
        listed = [
            {"id": int(n), "body": c["body"], "author": {"id": c["author"]}, "system": c.get("system", False)}
            for n, c in self.written.items()
        ]
        assert request.query["sort"] == "asc"
        return 200, listed[(page - 1) * most : page * most]

    def _add(self, request: Request, number: str) -> tuple[int, Any]:
        self._ticket(request, number)
        body = request.json()["body"]
        assert not re.search(r"^/[a-z]", body, re.MULTILINE), "a quick action"
        new_number = str(next(self.ids))
        self.written[new_number] = {"body": body, "author": 5}
        return 201, {"id": int(new_number)}

    def _change(self, request: Request, number: str, note: str) -> tuple[int, Any]:
        if self.written[note]["author"] != 5:
            raise RefusedError(403, {"message": "403 Forbidden"})
        self.written[note]["body"] = request.json()["body"]
        return 200, {"id": int(note)}

    def _remove(self, request: Request, number: str, note: str) -> tuple[int, Any]:
        if self.written.pop(note, None) is None:
            raise RefusedError(404)
        return 204, None

    def _upload(self, request: Request) -> tuple[int, Any]:
        name, data, _ = request.form()["file"]
        if len(data) > self.limit:
            raise RefusedError(413, {"message": "413 Request Entity Too Large"})
        number = f"{next(self.ids):032x}"
        self.files[number] = {"name": name, "data": data}
        return 201, {"id": 1, "alt": name, "url": f"/uploads/{number}/{name}", "full_path": f"/-/project/1/uploads/{number}/{name}"}

    def _discard(self, request: Request, secret: str, name: str) -> tuple[int, Any]:
        if self.files[secret]["name"] != name:
            raise RefusedError(404)
        del self.files[secret]
        return 204, None

    def _search(self, request: Request) -> tuple[int, Any]:
        assert request.query["in"] == "description"
        assert request.query["state"] == "opened"
        matches = [
            {"iid": int(n), "description": one["description"]}
            for n, one in self.issues.items()
            if request.query["search"] in one["description"]
        ]
        return 200, matches

    def _open(self, request: Request) -> tuple[int, Any]:
        value = request.json()
        number = str(len(self.issues) + 20)
        self.issues[number] = {"description": value["description"], "title": value["title"], "labels": value.get("labels")}
        return 201, {"iid": int(number)}


class FakeGitHub(Fake):
    """GitHub's REST API as docs.github.com describes it: comments of issues, releases and their assets."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.issues: dict[str, dict[str, Any]] = {"7": {"body": ""}}
        self.user_known = True
        self.uploads_host = ""

    def authorize(self, request: Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise RefusedError(401, {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"})
        if not request.headers.get("User-Agent"):
            raise RefusedError(403, {"message": "Request forbidden by administrative rules."})

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        repo = "/api/v3/repos/owner/repo"
        return [
            (
                "GET",
                "/api/v3/user",
                lambda r: (200, {"login": "bot"}) if self.user_known else (403, {"message": "Resource not accessible by integration"}),
            ),
            ("GET", f"{repo}/issues/([0-9]+)", self._issue),
            ("GET", f"{repo}/issues/([0-9]+)/comments", self._comments),
            ("POST", f"{repo}/issues/([0-9]+)/comments", self._add),
            ("PATCH", f"{repo}/issues/comments/([0-9]+)", self._change),
            ("DELETE", f"{repo}/issues/comments/([0-9]+)", self._remove),
            ("GET", f"{repo}/releases/tags/v1", lambda r: (200, self._release())),
            ("POST", "/uploads/1/assets", self._upload),
            ("DELETE", f"{repo}/releases/assets/([0-9]+)", lambda r, n: (204, self.files.pop(n) and None)),
            ("GET", f"{repo}/issues", self._list),
            ("POST", f"{repo}/issues", self._open),
        ]

    def _issue(self, request: Request, number: str) -> tuple[int, Any]:
        if number not in self.issues:
            raise RefusedError(404, {"message": "Not Found"})
        return 200, {"number": int(number)}

    def _comments(self, request: Request, number: str) -> tuple[int, Any]:
        page, most = int(request.query["page"]), int(request.query["per_page"])
        listed = [{"id": int(n), "body": c["body"], "user": {"login": c["author"]}} for n, c in self.written.items()]
        return 200, listed[(page - 1) * most : page * most]

    def _body(self, request: Request) -> str:
        body = str(request.json()["body"])
        if len(body) > 65_536:
            raise RefusedError(
                422, {"message": "Validation Failed", "errors": [{"message": "body is too long (maximum is 65536 characters)"}]}
            )
        return body

    def _add(self, request: Request, number: str) -> tuple[int, Any]:
        self._issue(request, number)
        if self.issues[number].get("locked"):
            raise RefusedError(403, {"message": "Unable to create comment because issue is locked."})
        new_number = str(next(self.ids))
        self.written[new_number] = {"body": self._body(request), "author": "bot"}
        return 201, {"id": int(new_number)}

    def _change(self, request: Request, number: str) -> tuple[int, Any]:
        if self.written[number]["author"] != "bot":
            raise RefusedError(403, {"message": "Must have admin rights to Repository."})
        self.written[number]["body"] = self._body(request)
        return 200, {"id": int(number)}

    def _remove(self, request: Request, number: str) -> tuple[int, Any]:
        if self.written.pop(number, None) is None:
            raise RefusedError(404)
        return 204, None

    def _release(self) -> Any:
        assets = [{"id": int(n), "name": f["name"]} for n, f in self.files.items()]
        return {"id": 1, "upload_url": f"{self.uploads_host or self.url}/uploads/1/assets{{?name,label}}", "assets": assets}

    def _upload(self, request: Request) -> tuple[int, Any]:
        name = request.query["name"]
        if any(one["name"] == name for one in self.files.values()):
            raise RefusedError(422, {"message": "Validation Failed", "errors": [{"code": "already_exists", "field": "name"}]})
        number = str(next(self.ids))
        self.files[number] = {"name": name, "data": request.data}
        return 201, {"id": int(number), "browser_download_url": f"{self.url}/owner/repo/releases/download/v1/{name}"}

    def _list(self, request: Request) -> tuple[int, Any]:
        assert request.query["state"] == "open"
        listed = [{"number": int(n), "body": one["body"]} for n, one in self.issues.items()]
        page, most = int(request.query["page"]), int(request.query["per_page"])
        return 200, listed[(page - 1) * most : page * most]

    def _open(self, request: Request) -> tuple[int, Any]:
        value = request.json()
        number = str(len(self.issues) + 20)
        self.issues[number] = {"body": value["body"], "title": value["title"]}
        return 201, {"number": int(number)}


class FakeGitea(FakeGitHub):
    """Gitea's API 1 by its published description: like GitHub's, with files on issues."""

    limit_mib = 100

    def authorize(self, request: Request) -> None:
        if request.headers.get("Authorization") != f"token {self.token}":
            raise RefusedError(401, {"message": "user does not exist [uid: 0, name: ]"})

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        repo = "/api/v1/repos/owner/repo"
        return [
            ("GET", "/api/v1/user", lambda r: (200, {"login": "bot"})),
            ("GET", "/api/v1/settings/attachment", lambda r: (200, {"enabled": True, "max_size": self.limit_mib, "max_files": 5})),
            ("GET", f"{repo}/issues/([0-9]+)", self._issue),
            ("GET", f"{repo}/issues/([0-9]+)/comments", self._all),
            ("POST", f"{repo}/issues/([0-9]+)/comments", self._add),
            ("PATCH", f"{repo}/issues/comments/([0-9]+)", self._change),
            ("DELETE", f"{repo}/issues/comments/([0-9]+)", self._remove),
            ("GET", f"{repo}/issues/7/assets", lambda r: (200, [{"id": int(n), "name": f["name"]} for n, f in self.files.items()])),
            ("POST", f"{repo}/issues/7/assets", self._asset),
            ("DELETE", f"{repo}/issues/7/assets/([0-9]+)", lambda r, n: (204, self.files.pop(n) and None)),
            ("GET", f"{repo}/issues", self._some),
            ("POST", f"{repo}/issues", self._open),
        ]

    def _all(self, request: Request, number: str) -> tuple[int, Any]:
        return 200, [{"id": int(n), "body": c["body"], "user": {"login": c["author"]}} for n, c in self.written.items()]

    def _some(self, request: Request) -> tuple[int, Any]:
        request.query["per_page"] = request.query["limit"]
        return self._list(request)

    def _asset(self, request: Request) -> tuple[int, Any]:
        name, data, _ = request.form()["attachment"]
        number = str(next(self.ids))
        self.files[number] = {"name": name, "data": data}
        return 201, {"id": int(number), "name": name, "browser_download_url": f"{self.url}/attachments/{number}"}


class FakeRedmine(Fake):
    """Redmine as version 5.0.4 was seen to answer: a PUT without an answer adds notes, an empty note goes, too large is 422."""

    limit = 5 << 20

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, bytes] = {}
        self.issues: dict[str, dict[str, Any]] = {"7": {"description": None}}

    def authorize(self, request: Request) -> None:
        if request.headers.get("X-Redmine-API-Key") != self.token:
            raise RefusedError(401, b" ")

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        return [
            ("GET", "/users/current.json", lambda r: (200, {"user": {"id": 5}})),
            ("GET", r"/issues/([0-9]+)\.json", self._issue),
            ("PUT", r"/issues/([0-9]+)\.json", self._update),
            ("PUT", r"/journals/([0-9]+)\.json", self._change),
            ("POST", r"/uploads\.json", self._upload),
            ("DELETE", r"/attachments/([0-9]+)\.json", lambda r, n: (204, self.files.pop(n) and None)),
            ("GET", r"/issues\.json", self._list),
            ("POST", r"/issues\.json", self._open),
            ("GET", r"/projects/perf\.json", lambda r: (200, {"project": {"id": 1, "trackers": [{"id": 3, "name": "Bug"}]}})),
        ]

    def _issue(self, request: Request, number: str) -> tuple[int, Any]:
        if number not in self.issues:
            raise RefusedError(404, b" ")
        issue: dict[str, Any] = {"id": int(number)}
        include = request.query.get("include", "")
        if "journals" in include:
            issue["journals"] = [{"id": int(n), "user": {"id": c["author"]}, "notes": c["body"]} for n, c in self.written.items()]
        if "attachments" in include:
            issue["attachments"] = [{"id": int(n), "filename": f["name"], "author": {"id": 5}} for n, f in self.files.items()]
        return 200, {"issue": issue}

    def _update(self, request: Request, number: str) -> tuple[int, Any]:
        value = request.json()["issue"]
        for upload in value.get("uploads", []):
            self.files[upload["token"].partition(".")[0]] = {"name": upload["filename"], "data": self.waiting.pop(upload["token"])}
        if value.get("notes"):
            self.written[str(next(self.ids))] = {"body": value["notes"].replace("\n", "\r\n"), "author": 5}
        return 204, None

    def _change(self, request: Request, number: str) -> tuple[int, Any]:
        if number not in self.written:
            raise RefusedError(404, b" ")
        notes = request.json()["journal"]["notes"]
        if notes:
            self.written[number]["body"] = notes
        else:
            del self.written[number]
        return 204, None

    def _upload(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("Content-Type") != "application/octet-stream":
            raise RefusedError(406, b"")
        if len(request.data) > self.limit:
            raise RefusedError(422, {"errors": ["This file cannot be uploaded because it exceeds the maximum allowed file size (5 MB)"]})
        token = f"{next(self.ids)}.abc"
        self.waiting[token] = request.data
        return 201, {"upload": {"id": int(token.partition(".")[0]), "token": token}}

    def _list(self, request: Request) -> tuple[int, Any]:
        assert request.query["project_id"] == "perf"
        first, most = int(request.query["offset"]), int(request.query["limit"])
        listed = [{"id": int(n), "description": one["description"]} for n, one in self.issues.items()]
        return 200, {"issues": listed[first : first + most], "total_count": len(listed)}

    def _open(self, request: Request) -> tuple[int, Any]:
        value = request.json()["issue"]
        number = str(len(self.issues) + 20)
        self.issues[number] = {"description": value["description"], "title": value["subject"], "tracker": value.get("tracker_id")}
        return 201, {"issue": {"id": int(number)}}


class FakeSlack(Fake):
    """An incoming webhook as docs.slack.dev describes it: text, and at most 50 blocks with sections of at most 3,000 characters."""

    path = "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"

    def authorize(self, request: Request) -> None:
        """Nothing: who knows the address may post."""

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        return [("POST", self.path, self._post)]

    def _post(self, request: Request) -> tuple[int, Any]:
        value = request.json()
        if not isinstance(value.get("text"), str) or not value["text"]:
            raise RefusedError(400, b"no_text", {"Content-Type": "text/html"})
        blocks = value.get("blocks", [])
        if set(value) - {"text", "blocks"} or not 1 <= len(blocks) <= 50 or not all(map(self._valid, blocks)):
            raise RefusedError(400, b"invalid_blocks", {"Content-Type": "text/html"})
        for text in [value["text"], *(block["text"]["text"] for block in blocks)]:
            for tag in re.findall("<([^>]*)>", text):
                assert re.match(r"https?://[^|]+\|", tag), f"not a link of ours: {tag}"
            assert not re.search("&(?!amp;|lt;|gt;)", text), "an unescaped ampersand"
            assert ">" not in re.sub("<[^<>]*>", "", text)
        return 200, b"ok"

    @staticmethod
    def _valid(block: dict[str, Any]) -> bool:
        text = block["text"]
        return (
            set(block) == {"type", "text"}
            and block["type"] == "section"
            and set(text) <= {"type", "text", "verbatim"}
            and text["type"] == "mrkdwn"
            and 1 <= len(text["text"].encode("utf-16-le")) // 2 <= 3000
        )


class FakeTeams(Fake):
    """A workflow's webhook as learn.microsoft.com describes it: a message with Adaptive Cards, 28 KB, answered with 202 and no text."""

    path = "/workflows/0123456789abcdef0123456789abcdef/triggers/manual/paths/invoke"
    query = "api-version=1&sp=%2Ftriggers&sig=s3cret-signature-of-the-workflow"

    def authorize(self, request: Request) -> None:
        if request.query.get("sig") != "s3cret-signature-of-the-workflow":
            raise RefusedError(401, {"error": {"code": "DirectApiAuthorizationRequired", "message": "The request must be authenticated."}})

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        return [("POST", self.path, self._post)]

    def _post(self, request: Request) -> tuple[int, Any]:
        if len(request.data) > 28 * 1024:
            raise RefusedError(413, {"error": {"code": "RequestEntityTooLarge"}})
        value = request.json()
        assert value["type"] == "message"
        (attachment,) = value["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        assert set(card) <= {"$schema", "type", "version", "msteams", "body", "actions"}
        assert set(card["msteams"]) == {"width"}, "entities would mention people"
        assert card["body"]
        for block in card["body"]:
            assert (block["type"], bool(block["inlines"])) == ("RichTextBlock", True)
            for run in block["inlines"]:
                assert run["type"] == "TextRun"
                assert set(run) <= {"type", "text", "weight"}
                assert run["text"]
                assert run.get("weight", "Bolder") == "Bolder"
        for action in card.get("actions", []):
            assert (action["type"], set(action)) == ("Action.OpenUrl", {"type", "title", "url"})
        return 202, None


class FakeWebhook(FakeSlack):
    """A program that reads our JSON."""

    path = "/hooks/s3cret-token-in-the-path"

    def _post(self, request: Request) -> tuple[int, Any]:
        value = request.json()
        assert set(value) - {"run", "rule", "family"} == {"key", "summary", "text"}
        assert value["summary"]["marker"] == f"postrun:{value['key']}"
        return 201, {"ok": True}


def report_json(**changes: Any) -> dict[str, Any]:
    """A small report.json by hand."""
    rule = {"category": "system", "informs": False, "reason": None, "finding": None}
    return {
        "schema_version": 1,
        "generator": {"name": "postrun", "version": "0.1.0", "generated_at_ns": 1_795_266_323_753_915_785},
        "run": {"name": "gpt-350m", "status": "completed"},
        "summary": {
            "headline": "GPUs were busy 91% of the time.",
            "subtitle": "2 nodes x 4 H100",
            "tiles": [{"label": "GPU busy", "value": "91.1%"}],
            "warnings": [],
        },
        "rules": [
            {**rule, "rule": "ProfilerReport", "category": "report", "verdict": "IssuesFound"},
            {**rule, "rule": "CPUBottleneck", "verdict": "NoIssuesFound"},
            {**rule, "rule": "LowGPUUtilization", "verdict": "IssuesFound", "finding": "8 of 8 GPUs are used too little."},
            {**rule, "rule": "IOBottleneck", "verdict": "NotEvaluated", "reason": "there are no samples of I/O"},
        ],
        "findings": [
            {"rank": n, "rule": "LowGPUUtilization", "severity": "high", "title": f"Feed GPU {n}", "text": "It idles.", "where": "algo-1",
             "recommendation": "Use `num_workers=4`.", "explained_by": "StragglerRank" if n == 2 else None}
            for n in range(1, 5)
        ],
        "actions": {"base": "GPU time of the run", "rows": [
            {"finding": n, "rule": "LowGPUUtilization", "percent": 40.0 / n, "time_ns": 1, "saving_kind": "upper_bound", "base": None,
             "cost_percent": 41.3}
            for n in range(1, 5)
        ]},
        **changes,
    }  # fmt: skip
