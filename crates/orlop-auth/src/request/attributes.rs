//! Attributes of a request: who asks for what. Authorization, admission, flow control, audit and metrics all
//! decide by them.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use http::Method;
use orlop_api::{group_version::GroupResource, names, query::Query, user::UserInfo};

use super::{Selectors, Subresource, Verb};

/// The user of requests that are not authenticated (yet).
static ANONYMOUS: LazyLock<Arc<UserInfo>> = LazyLock::new(|| Arc::new(UserInfo::anonymous()));

/// Attributes of a request. All but the user follow from its method, path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The user; anonymous until authentication sets it.
    pub user: Arc<UserInfo>,
    /// The verb.
    pub verb: Verb,
    /// True below `/api/VERSION` and `/apis/GROUP/VERSION`. Otherwise only the path is set.
    pub is_resource_request: bool,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, if the request is for one.
    pub subresource: Option<Subresource>,
    /// Namespace; empty for none or all. A request for a namespace is in that namespace, as in Kubernetes: a RoleBinding
    /// there can grant it.
    pub namespace: String,
    /// Name of the object; empty for a collection.
    pub name: String,
    /// Path of a request that is not for a resource; empty otherwise.
    pub path: String,
    /// Path after the subresource, of a proxy request.
    pub rest: String,
    /// Selectors of a list, watch or deletecollection, if it has any.
    pub selectors: Option<Box<Selectors>>,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            user: ANONYMOUS.clone(),
            verb: Verb::default(),
            is_resource_request: false,
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: None,
            namespace: String::new(),
            name: String::new(),
            path: String::new(),
            rest: String::new(),
            selectors: None,
        }
    }
}

impl Attributes {
    /// Classifies a request as Kubernetes does.
    pub fn of(method: &Method, path: &str, query: &Query) -> Self {
        Self::of_resource(method, path, query).unwrap_or_else(|| Self {
            verb: Verb::of_path(method),
            path: path.to_owned(),
            ..Self::default()
        })
    }

    fn of_resource(method: &Method, path: &str, query: &Query) -> Option<Self> {
        let decoded: Vec<Cow<'_, str>> =
            segments(path).map(|(_, segment)| percent_decoded(segment)).collect();
        let segments: Vec<&str> = decoded.iter().map(|segment| &**segment).collect();
        let (group, version, mut rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let mut verb = Verb::of_resource(method);
        let (mut legacy_watch, mut legacy_proxy) = (false, false);
        match rest {
            // Legacy paths of watches and proxies. Only a GET is a watch.
            ["watch", tail @ ..] if !tail.is_empty() => {
                (verb, rest) = (if verb == Verb::Get { Verb::Watch } else { Verb::none() }, tail);
                legacy_watch = true;
            }
            ["proxy", tail @ ..] if !tail.is_empty() => {
                (verb, rest, legacy_proxy) = (Verb::Proxy, tail, true);
            }
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
        let [resource, tail @ ..] = rest else { return None };
        let mut attributes = Self {
            verb,
            is_resource_request: true,
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            resource: (*resource).into(),
            ..Self::default()
        };
        if let [name, tail @ ..] = tail {
            attributes.name = (*name).into();
            if let ([subresource, tail @ ..], false) = (tail, legacy_proxy) {
                attributes.subresource = Some(Subresource::from(*subresource));
                // The backend of a proxy decodes its path itself.
                let first = self::segments(path).nth(segments.len() - tail.len());
                let encoded = first.map_or("", |(start, _)| &path[start..]).split('/');
                attributes.rest = encoded.filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/");
            }
        }
        if attributes.name.is_empty() {
            attributes.verb = match attributes.verb {
                Verb::Get if query.is_watch() => Verb::Watch,
                Verb::Get => Verb::List,
                Verb::Delete => Verb::DeleteCollection,
                other => other,
            };
            // Legacy watches do not support selectors consistently: as in Kubernetes, they do not count.
            if matches!(attributes.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) && !legacy_watch {
                attributes.selectors = Selectors::of(query);
            }
        }
        Some(attributes)
    }

    /// Returns the attributes that authorizers decide by, of a request that is routed already: as an object a namespace is
    /// in none, and for authorizers in itself.
    pub fn for_authorizers(&self) -> Cow<'_, Self> {
        let is_namespace = self.resource == "namespaces" && self.group.is_empty() && !self.name.is_empty();
        match is_namespace {
            true => Cow::Owned(Self { namespace: self.name.clone(), ..self.clone() }),
            false => Cow::Borrowed(self),
        }
    }

    /// Returns the attributes of a request of the same user for another object.
    pub fn for_object(&self, resource: GroupResource, version: &str, namespace: &str, name: &str) -> Self {
        Self {
            user: self.user.clone(),
            verb: self.verb.clone(),
            is_resource_request: true,
            group: resource.group,
            version: version.to_owned(),
            resource: resource.resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the name of the object; of a list or watch, the one name that its field selector requires.
    pub fn object_name(&self) -> &str {
        if !self.name.is_empty() || !matches!(self.verb, Verb::List | Verb::Watch) {
            return &self.name;
        }
        let required =
            self.selectors.as_ref().and_then(|selectors| selectors.required_field("metadata.name"));
        required.filter(|name| names::path_segment(name).is_empty()).unwrap_or_default()
    }

    /// Returns the name of the subresource; empty for none.
    pub fn subresource_name(&self) -> &str {
        self.subresource.as_ref().map_or("", Subresource::as_str)
    }

    /// Returns true if the response stays open for as long as the client wants.
    pub fn is_long_running(&self) -> bool {
        let streams =
            |subresource: &Subresource| subresource.is_connect() || *subresource == Subresource::Log;
        matches!(self.verb, Verb::Watch | Verb::Proxy) || self.subresource.as_ref().is_some_and(streams)
    }
}

/// Returns the start of a path up to the end of a segment, with segments as [`Attributes`] tells them apart. The whole path
/// if it has fewer.
pub fn leading_segments(path: &str, count: usize) -> &str {
    let last = count.checked_sub(1).and_then(|index| segments(path).nth(index));
    last.map_or(path, |(start, segment)| &path[..start + segment.len()])
}

/// Returns the segments of a path with their positions, still encoded. An escaped slash separates segments too, as in
/// Kubernetes: an extension API server that decodes the path before it splits it must not find a subresource in what was
/// authorized as a name.
fn segments(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let bytes = path.as_bytes();
        let start = end + separators(&bytes[end..]);
        end = start;
        while end < bytes.len() && separators(&bytes[end..]) == 0 {
            end += 1;
        }
        (end > start).then(|| (start, &path[start..end]))
    })
}

/// Returns the length of the slashes that a path begins with, escaped or not.
fn separators(path: &[u8]) -> usize {
    let mut length = 0;
    loop {
        length += match &path[length..] {
            [b'/', ..] => 1,
            [b'%', b'2', b'f' | b'F', ..] => 3,
            _ => return length,
        };
    }
}

/// Decodes a path segment; leaves it as it is if an escape is malformed.
fn percent_decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    // What has a meaning in a form is literal in a path.
    let escaped = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let pair = form_urlencoded::parse(escaped.as_bytes()).next();
    pair.map_or(Cow::Borrowed(segment), |(name, _)| Cow::Owned(name.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(method: Method, uri: &str) -> (String, String) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let a = Attributes::of(&method, path, &Query::parse(query));
        let resource = match a.is_resource_request {
            true => format!(
                "{}|{}|{}|{}|{}|{}",
                a.group,
                a.version,
                a.namespace,
                a.resource,
                a.name,
                a.subresource_name()
            ),
            false => String::new(),
        };
        (a.verb.to_string(), resource)
    }

    #[test]
    fn paths_are_classified_as_kubernetes_does() {
        let check = |uri: &str, verb: &str, resource: &str| {
            assert_eq!(classified(Method::GET, uri), (verb.to_owned(), resource.to_owned()), "{uri}");
        };
        check("/api/v1/pods", "list", "|v1||pods||");
        check("/api/v1/pods?watch=1", "watch", "|v1||pods||");
        check("/api/v1/pods?watch=false", "list", "|v1||pods||");
        check("/api/v1/namespaces/a/pods/x", "get", "|v1|a|pods|x|");
        check("/api/v1/namespaces/a/pods/x/log", "get", "|v1|a|pods|x|log");
        check("/api/v1/namespaces/a", "get", "|v1|a|namespaces|a|");
        check("/api/v1/namespaces/a/status", "get", "|v1|a|namespaces|a|status");
        check("/api/v1/namespaces?fieldSelector=metadata.name%3Da", "list", "|v1||namespaces||");
        check("/api/v1/watch/namespaces/a/pods", "watch", "|v1|a|pods||");
        check("/apis/apps/v1/namespaces/a/deployments", "list", "apps|v1|a|deployments||");
        check("/apis/apps/v1", "get", "");
        check("/healthz", "get", "");
        check("/api/v1/nodes/a%3Ab", "get", "|v1||nodes|a:b|");
        check("/api/v1/nodes/a=b&c+d%20e%3D", "get", "|v1||nodes|a=b&c+d e=|");
        check("/api/v1/namespaces/a/pods/x%2Fstatus", "get", "|v1|a|pods|x|status");
        check("/apis/apps/v1/namespaces/a%2fdeployments/x%2Fscale/y", "get", "apps|v1|a|deployments|x|scale");
        check("/api/v1/namespaces/%61/%70ods", "list", "|v1|a|pods||");
        assert_eq!(classified(Method::HEAD, "/livez").0, "head");
        assert_eq!(classified(Method::POST, "/api/v1/watch/namespaces/a/pods").0, "");
        assert_eq!(classified(Method::DELETE, "/api/v1/namespaces/a/pods").0, "deletecollection");
        assert_eq!(classified(Method::PUT, "/api/v1/namespaces/a/finalize").1, "|v1|a|namespaces|a|finalize");
    }

    #[test]
    fn path_of_a_proxied_request_stays_encoded() {
        let rest = |path: &str| Attributes::of(&Method::GET, path, &Query::default()).rest;
        assert_eq!(rest("/api/v1/namespaces/a/pods/x/proxy/b%2Fc/d%20e"), "b%2Fc/d%20e");
        assert_eq!(rest("/api/v1/namespaces/a/pods/x%2Fproxy%2Fb/c%2Fd"), "b/c%2Fd");
        assert_eq!(rest("/api/v1/namespaces/a/pods/x/proxy"), "");
    }

    #[test]
    fn field_selector_names_the_object_of_a_list_or_watch() {
        let name = |method: Method, uri: &str| {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            Attributes::of(&method, path, &Query::parse(query)).object_name().to_owned()
        };
        assert_eq!(name(Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Dx,spec.nodeName%3Dn"), "x");
        assert_eq!(name(Method::GET, "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Dx"), "x");
        assert_eq!(name(Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Da%252Fb"), "");
        assert_eq!(name(Method::GET, "/api/v1/pods?fieldSelector=metadata.name!%3Dx"), "");
        assert_eq!(name(Method::GET, "/api/v1/watch/pods?fieldSelector=metadata.name%3Dx"), "");
        assert_eq!(name(Method::DELETE, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx"), "");
        assert_eq!(name(Method::GET, "/api/v1/namespaces/a/pods/y?fieldSelector=metadata.name%3Dx"), "y");
    }

    #[test]
    fn watches_logs_and_connections_are_long_running() {
        let long = |uri: &str| {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            Attributes::of(&Method::GET, path, &Query::parse(query)).is_long_running()
        };
        assert!(long("/api/v1/pods?watch=1"));
        assert!(long("/api/v1/namespaces/a/pods/x/log"));
        assert!(long("/api/v1/namespaces/a/pods/x/exec"));
        assert!(!long("/api/v1/namespaces/a/pods/x"));
    }
}
