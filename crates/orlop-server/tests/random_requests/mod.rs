//! Random malformed requests, reproducible from a seed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{Method, Request};
use orlop_api::protobuf;
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Value, json};

const GROUPS: &[&str] = &[
    "api/v1",
    "apis/apps/v1",
    "apis/policy/v1",
    "apis/batch/v1",
    "apis/none/v1",
    "apis/apps/v9",
    "api",
    "apis",
];
const RESOURCES: &[&str] = &[
    "configmaps",
    "secrets",
    "pods",
    "services",
    "deployments",
    "namespaces",
    "nodes",
    "jobs",
    "events",
    "bindings",
    "nothings",
    "watch",
    "proxy",
    "poddisruptionbudgets",
    "serviceaccounts",
];
const SUBRESOURCES: &[&str] =
    &["status", "scale", "log", "exec", "eviction", "binding", "token", "finalize", "proxy/x/y", "nothing"];
const NAMES: &[&str] = &[
    "a",
    "b",
    "default",
    "kube-system",
    "..",
    ".",
    "%2e%2e",
    "%00",
    "%ff%fe",
    "a%2Fb",
    "%zz",
    "A_B",
    "-",
    "%E2%82%AC",
    "kubernetes",
    "*",
];
const PAGES: &[&str] = &[
    "/",
    "/version",
    "/healthz/x/y",
    "/readyz?exclude=%ff",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1?hash=x",
    "/openapi/v3/..%2f..",
    "/apis/",
    "/api//v1",
    "//api/v1/pods",
    "/nothing",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/orlop/v1/dependents?uid=x",
    "/orlop/v1/elsewhere",
];
const PARAMETERS: &[&str] = &[
    "watch",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "timeoutSeconds",
    "timeout",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "pretty",
    "includeObject",
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "uid",
    "exclude",
    "verbose",
    "container",
    "command",
    "export",
];
const VALUES: &[&str] = &[
    "",
    "1",
    "0",
    "-1",
    "true",
    "false",
    "x",
    "18446744073709551616",
    "-9223372036854775808",
    "1e9",
    "All",
    "Exact",
    "NotOlderThan",
    "Strict",
    "Orphan",
    "Object",
    "a=b",
    "a in (b",
    "!a,b notin (c,d)",
    "a>1",
    "metadata.name=a",
    "spec.x=1,,",
    "%ff",
    "%00",
    "%F0%9F%92%A5",
    "1ns",
    "99999h",
    // Continue tokens outside and inside of their list.
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4ifQ",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
];
const ACCEPTED: &[&str] = &[
    "application/json",
    "application/yaml",
    protobuf::MEDIA_TYPE,
    "*/*",
    "",
    ";;;",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=x",
    "text/html;q=x",
    "application/json;q=NaN,application/yaml;q=inf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/cbor",
];
const BODY_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    protobuf::MEDIA_TYPE,
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    "",
    "application/json; charset=latin1",
];
const KINDS: &[(&str, &str)] = &[
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "Namespace"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("policy/v1", "Eviction"),
    ("v1", "Binding"),
    ("autoscaling/v1", "Scale"),
    ("v1", "DeleteOptions"),
    ("v1", "Nothing"),
    ("", ""),
];
const METADATA: &[&str] = &[
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "generateName",
    "namespace",
    "resourceVersion",
    "uid",
    "managedFields",
    "deletionTimestamp",
    "creationTimestamp",
];
const FIELDS: &[&str] = &[
    "data",
    "binaryData",
    "spec",
    "status",
    "type",
    "stringData",
    "immutable",
    "target",
    "deleteOptions",
    "preconditions",
];
const KEYS: &[&str] = &[
    "a",
    "name",
    "matchLabels",
    "matchExpressions",
    "app",
    "",
    "a/b/c",
    "type",
    "rollingUpdate",
    "$patch",
    "key",
    "operator",
    "values",
];

/// Generator of requests.
pub(crate) struct RandomRequests(SmallRng);

impl RandomRequests {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.0).copied().unwrap()
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.0.random_ratio(1, one_in)
    }

    /// Returns a request; `None` if it cannot be built.
    pub(crate) fn request(&mut self) -> Option<Request<Bytes>> {
        let method = self.one(&["GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]);
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let mut request = Request::builder().uri(self.uri());
        for (name, values) in [("accept", ACCEPTED), ("content-type", BODY_TYPES)] {
            if !self.chance(8) {
                request = request.header(name, self.one(values));
            }
        }
        if self.chance(4) {
            let length = self.0.random_range(0..300);
            let agent: Vec<u8> = (0..length).map(|_| self.0.random_range(128..=255)).collect();
            request = request.header("user-agent", agent);
        }
        for (name, value) in [
            ("audit-id", "x\ty"),
            ("accept-encoding", "gzip;q=x, br"),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.!!!"),
            ("if-none-match", "\"x"),
            ("content-encoding", "gzip"),
        ] {
            if self.chance(6) {
                request = request.header(name, value);
            }
        }
        let has_body = !matches!(method, Method::GET | Method::HEAD) || self.chance(10);
        let body = if has_body { self.body() } else { Vec::new() };
        request.method(method).body(body.into()).ok()
    }

    fn uri(&mut self) -> String {
        let mut uri = if self.chance(8) { self.one(PAGES).to_owned() } else { self.path() };
        for _ in 0..self.0.random_range(0..4) {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            let (name, value) = (self.one(PARAMETERS), self.one(VALUES));
            uri.push_str(&format!("{name}={}", value.replace(' ', "%20").replace('>', "%3E")));
        }
        uri
    }

    fn path(&mut self) -> String {
        let mut path = format!("/{}", self.one(GROUPS));
        if !self.chance(4) {
            path.push_str(&format!("/namespaces/{}", self.one(NAMES)));
        }
        if !self.chance(10) {
            path.push_str(&format!("/{}", self.one(RESOURCES)));
        }
        if !self.chance(3) {
            let name = if self.chance(12) { "long-".repeat(200) } else { self.one(NAMES).to_owned() };
            path.push_str(&format!("/{name}"));
            if self.chance(3) {
                path.push_str(&format!("/{}", self.one(SUBRESOURCES)));
            }
        }
        path
    }

    fn body(&mut self) -> Vec<u8> {
        let object = self.object();
        let text = object.to_string();
        match self.0.random_range(0..14) {
            0 => Vec::new(),
            // Deeper than the depth limit.
            1 => {
                let depth = self.0.random_range(1..20_000);
                let (open, close) = if self.chance(2) { ("[", "]") } else { ("{\"a\":", "}") };
                format!("{}1{}", open.repeat(depth), close.repeat(depth)).into_bytes()
            }
            2 => {
                let number = self.one(&["1e999", "-0", "1e-999", "99999999999999999999999999", "NaN"]);
                text.replace("\"1\"", number).into_bytes()
            }
            3 => text.as_bytes()[..self.0.random_range(0..text.len())].to_vec(),
            4 => {
                let mut bytes = text.into_bytes();
                for _ in 0..self.0.random_range(1..20) {
                    let at = self.0.random_range(0..bytes.len());
                    bytes[at] = self.0.random();
                }
                bytes
            }
            5 => {
                let mut bytes = protobuf::encode(&object).unwrap_or_default();
                if !bytes.is_empty() {
                    let at = self.0.random_range(0..bytes.len());
                    bytes[at] ^= self.0.random::<u8>();
                    bytes.truncate(self.0.random_range(0..=bytes.len()));
                }
                bytes
            }
            6 => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text.as_bytes()).unwrap();
                let mut bytes = encoder.finish().unwrap();
                bytes.truncate(self.0.random_range(0..=bytes.len()));
                bytes
            }
            // YAML aliases that expand exponentially.
            7 => {
                let lines = (0..30).map(|n| format!("a{}: &a{} [*a{n},*a{n}]\n", n + 1, n + 1));
                format!("a0: &a0 x\n{}", lines.collect::<String>()).into_bytes()
            }
            // Misplaced tags, tabs and anchors.
            8 => format!("--- !!binary |\n\t{text}\n? [complex, key]\n: !!set {{a, b}}\n<<: *nothing\n")
                .into_bytes(),
            9 => self.patch().into_bytes(),
            10 => {
                let twice = "\"kind\":\"ConfigMap\",\"metadata\":{\"name\":1},\"metadata\"";
                text.replacen("\"metadata\"", twice, 1).into_bytes()
            }
            11 => {
                let length = self.0.random_range(0..200);
                (0..length).map(|_| self.0.random::<u8>()).collect()
            }
            _ => text.into_bytes(),
        }
    }

    fn patch(&mut self) -> String {
        let operation = self.one(&["add", "remove", "replace", "move", "copy", "test", "x"]);
        let path = self.one(&[
            "/",
            "",
            "/data/~2",
            "/metadata/labels/a~1b",
            "/items/-1",
            "/spec/99999999999999999999",
        ]);
        let one = json!({"op": operation, "path": path, "from": "/metadata", "value": self.value(2)});
        Value::Array(vec![one; if self.chance(20) { 10_001 } else { 2 }]).to_string()
    }

    /// Returns an object of a served kind with malformed fields.
    fn object(&mut self) -> Value {
        let (version, kind) = *KINDS.choose(&mut self.0).unwrap();
        let mut metadata = json!({"name": self.one(&["a", "b", "c", "A B", "", "\u{0}"])});
        for field in METADATA {
            if self.chance(8) {
                metadata[*field] = self.value(3);
            }
        }
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        for field in FIELDS {
            if self.chance(3) {
                object[*field] = self.value(4);
            }
        }
        if self.chance(2) {
            let container = json!({"name": self.value(1), "image": "i", "ports": self.value(2), "resources": self.value(3)});
            let pod = json!({"containers": [container], "volumes": self.value(3)});
            object["spec"] = match kind {
                "Pod" => pod,
                "Service" => json!({"ports": [{"port": self.value(1), "targetPort": self.value(1)}],
                    "clusterIP": self.value(1), "selector": self.value(2)}),
                _ => json!({"selector": self.value(3), "replicas": self.value(1), "strategy": self.value(3),
                    "template": {"metadata": self.value(2), "spec": pod}}),
            };
        }
        object
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.0.random_range(0..if depth == 0 { 8 } else { 12 }) {
            0 => Value::Null,
            1 => self.chance(2).into(),
            2 => self.0.random::<i64>().into(),
            3 => "1".into(),
            4 => self.0.random::<f64>().into(),
            5 => self.one(VALUES).into(),
            6 => "\u{10FFFF}\u{0}\u{202e}".into(),
            7 => "x".repeat(self.0.random_range(0..300)).into(),
            8 | 9 => {
                let length = self.0.random_range(0..4);
                Value::Array((0..length).map(|_| self.value(depth - 1)).collect())
            }
            _ => {
                let length = self.0.random_range(0..4);
                let entries = (0..length).map(|_| (self.one(KEYS).to_owned(), self.value(depth - 1)));
                entries.collect::<serde_json::Map<_, _>>().into()
            }
        }
    }
}
