# An extension API server of custom and external metrics. Values are read from a file, by the path that is asked for.
import http.server, json, os, ssl

ROOT = os.environ.get("ORLOP_ROOT", "")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0].rstrip("/")
        parts = path.split("/")
        if len(parts) == 4:
            kind = {"kind": "MetricValueList", "namespaced": True, "singularName": "", "verbs": ["get"]}
            body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "/".join(parts[2:]),
                    "resources": [dict(kind, name="pods/queue"), dict(kind, name="services/queue")]}
        else:
            try:
                values = json.load(open(ROOT + "/data/values"))
            except FileNotFoundError:
                values = {}
            items = values.get(path)
            if items is None:
                return self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                                         "code": 404, "message": "no metric at " + path})
            body = {"kind": "MetricValueList", "apiVersion": "/".join(parts[2:4]), "metadata": {}, "items": items}
        self.answer(200, body)

    def answer(self, code, body):
        body = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        print(*arguments, flush=True)

server = http.server.ThreadingHTTPServer((os.environ["POD_IP"], 6443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(ROOT + "/tls/tls.crt", ROOT + "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
