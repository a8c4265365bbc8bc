//! What a request is about, from its method and path alone.

use http::Method;

use crate::http::query::Query;

/// A request, classified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The verb: `get`, `list`, `watch`, `create`… or for other paths the method in lower case.
    pub verb: &'static str,
    /// What it is about, if it is below `/api/v1` or `/apis/GROUP/VERSION`.
    pub resource: Option<ResourceInfo>,
}

/// The resource part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The API group; empty for core.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The namespace; empty for none or all.
    pub namespace: String,
    /// The resource's plural name.
    pub resource: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// `status`, `scale`…; empty for the object itself.
    pub subresource: String,
    /// What follows the subresource, for proxies.
    pub rest: String,
}

impl RequestInfo {
    /// Classifies a request.
    pub fn of(method: &Method, path: &str, query: &Query) -> Self {
        let plain = Self { verb: plain_verb(method), resource: None };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return plain,
        };
        let mut verb = resource_verb(method);
        let mut proxied = false;
        match rest {
            // The old way to say verb=watch or proxy, still used by old clients.
            // Only looking is watching: nothing else can be done there.
            ["watch", tail @ ..] if !tail.is_empty() => {
                (verb, rest) = (if verb == "get" { "watch" } else { "" }, tail);
            }
            ["proxy", tail @ ..] if !tail.is_empty() => (verb, rest, proxied) = ("proxy", tail, true),
            _ => {}
        }
        let namespace = match rest {
            ["namespaces", name, resource, ..] if !matches!(*resource, "status" | "finalize") => {
                rest = &rest[2..];
                *name
            }
            ["namespaces", name, ..] => *name,
            _ => "",
        };
        let [resource, tail @ ..] = rest else { return plain };
        let mut info = ResourceInfo {
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            resource: (*resource).into(),
            ..ResourceInfo::default()
        };
        if let [name, tail @ ..] = tail {
            info.name = decoded(name);
            if let ([subresource, tail @ ..], false) = (tail, proxied) {
                info.subresource = (*subresource).into();
                info.rest = tail.join("/");
            }
        }
        if info.name.is_empty() {
            verb = match verb {
                "get" if query.is_watch() => "watch",
                "get" => "list",
                "delete" => "deletecollection",
                other => other,
            };
        }
        if info.resource == "namespaces" && info.name == info.namespace {
            // A namespace is not in itself.
            info.namespace.clear();
        }
        Self { verb, resource: Some(info) }
    }

    /// Whether the request stays open for as long as it is wanted.
    pub fn is_long_running(&self) -> bool {
        let subresource = self.resource.as_ref().map_or("", |resource| resource.subresource.as_str());
        matches!(self.verb, "watch" | "proxy")
            || matches!(subresource, "attach" | "exec" | "proxy" | "log" | "portforward")
    }
}

/// A path segment with its escapes undone; left as it is where they are malformed.
fn decoded(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    // A plus sign stands for itself in a path.
    let kept = segment.replace('+', "%2B");
    let pair = form_urlencoded::parse(kept.as_bytes()).next();
    pair.map_or_else(|| segment.to_owned(), |(name, _)| name.into_owned())
}

fn resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "post",
        Method::GET => "get",
        Method::HEAD => "head",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: Method, uri: &str) -> (&'static str, String) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let info = RequestInfo::of(&method, path, &Query::parse(query));
        let about = info.resource.map_or_else(String::new, |r| {
            format!("{}|{}|{}|{}|{}|{}", r.group, r.version, r.namespace, r.resource, r.name, r.subresource)
        });
        (info.verb, about)
    }

    #[test]
    fn paths_are_classified_as_kubernetes_does() {
        let get = |uri| info(Method::GET, uri);
        assert_eq!(get("/api/v1/pods"), ("list", "|v1||pods||".into()));
        assert_eq!(get("/api/v1/pods?watch=1"), ("watch", "|v1||pods||".into()));
        assert_eq!(get("/api/v1/pods?watch=false"), ("list", "|v1||pods||".into()));
        assert_eq!(get("/api/v1/namespaces/a/pods/x"), ("get", "|v1|a|pods|x|".into()));
        assert_eq!(get("/api/v1/namespaces/a/pods/x/log"), ("get", "|v1|a|pods|x|log".into()));
        assert_eq!(get("/api/v1/namespaces/a"), ("get", "|v1||namespaces|a|".into()));
        assert_eq!(get("/api/v1/namespaces/a/status"), ("get", "|v1||namespaces|a|status".into()));
        assert_eq!(get("/api/v1/watch/namespaces/a/pods"), ("watch", "|v1|a|pods||".into()));
        assert_eq!(get("/apis/apps/v1/namespaces/a/deployments"), ("list", "apps|v1|a|deployments||".into()));
        assert_eq!(get("/apis/apps/v1"), ("get", String::new()));
        assert_eq!(get("/healthz"), ("get", String::new()));
        assert_eq!(get("/api/v1/nodes/a%3Ab").1, "|v1||nodes|a:b|");
        assert_eq!(info(Method::POST, "/api/v1/watch/namespaces/a/pods").0, "");
        assert_eq!(info(Method::DELETE, "/api/v1/namespaces/a/pods").0, "deletecollection");
        assert_eq!(info(Method::PUT, "/api/v1/namespaces/a/finalize").1, "|v1||namespaces|a|finalize");
    }
}
