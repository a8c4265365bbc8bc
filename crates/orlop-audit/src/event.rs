//! An audit event, and its encoding.
//!
//! Events are encoded straight into bytes, field by field in the order of Kubernetes' type: at level Metadata this is
//! all that a request pays.

use std::{borrow::Cow, net::IpAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use orlop_api::{status::Status, time::Time, user::UserInfo};
use orlop_auth::request::Attributes;
use serde_json::Value;
use std::sync::Arc;

use crate::{
    policy::namespace_of,
    stage::{Level, Stage},
};

/// The type of an event in the log. The items of an EventList have none.
pub(crate) const TYPE_META: &str = r#""kind":"Event","apiVersion":"audit.k8s.io/v1","#;
/// Bytes of a User-Agent that are recorded, as in Kubernetes.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// Annotation of an event whose objects were left out for their size.
pub const TRUNCATED: &str = "audit.k8s.io/truncated";
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The audit event of a request.
#[derive(Clone, Debug)]
pub struct Event {
    /// The level.
    pub level: Level,
    /// Id of the request.
    pub id: HeaderValue,
    /// Path and query as received.
    pub uri: Uri,
    /// Verb and resource.
    pub attributes: Arc<Attributes>,
    /// The authenticated user; `None` if authentication failed.
    pub user: Option<Arc<UserInfo>>,
    /// The user that the authenticated one acts as.
    pub impersonated: Option<Arc<UserInfo>>,
    /// Mode of a constrained impersonation.
    pub impersonation_constraint: Option<Cow<'static, str>>,
    /// Addresses of the client, the nearest last.
    pub source_ips: Vec<IpAddr>,
    /// The User-Agent header.
    pub user_agent: Option<HeaderValue>,
    /// Facts about the object that its handler knows and the path does not tell.
    pub object: ObjectFacts,
    /// The result.
    pub response: Option<ResponseStatus>,
    /// JSON of the request's object.
    pub request_object: Option<Bytes>,
    /// JSON of the response's object.
    pub response_object: Option<Bytes>,
    /// Time at which the request arrived.
    pub received: Time,
    /// Annotations.
    pub annotations: Annotations,
}

/// Annotations of an event, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Vec<(Cow<'static, str>, Cow<'static, str>)>);

impl Annotations {
    /// Adds an annotation. The first value of a key stays.
    pub fn add(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        let key = key.into();
        if let Err(place) = self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            self.0.insert(place, (key, value.into()));
        }
    }

    /// Adds all of others. The first value of a key stays.
    pub(crate) fn add_all(&mut self, others: Self) {
        others.0.into_iter().for_each(|(key, value)| self.add(key, value));
    }
}

/// Metadata of a request's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
}

/// Result of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseStatus {
    /// `Success` or `Failure`, if the response is a Status.
    pub status: Cow<'static, str>,
    /// Message of a Status.
    pub message: String,
    /// Reason of a Status.
    pub reason: Cow<'static, str>,
    /// JSON of a Status' details.
    pub details: Option<Box<str>>,
    /// HTTP code.
    pub code: u16,
}

impl ResponseStatus {
    /// Returns the result of a response that is no Status.
    pub fn code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// Returns the result of a request whose client went away before the response.
    pub fn closed_early() -> Self {
        let message = "Connection closed early".to_owned();
        Self { status: Cow::Borrowed("Success"), message, code: 200, ..Self::default() }
    }

    /// Returns the result of a handler that panicked.
    pub fn panicked(message: &str) -> Self {
        Self {
            status: Cow::Borrowed("Failure"),
            message: format!("APIServer panic'd: {message}"),
            reason: Cow::Borrowed("InternalError"),
            details: None,
            code: 500,
        }
    }

    /// Returns the result that a response object tells, if it is a Status.
    pub fn of_object(object: &Value, code: u16) -> Option<Self> {
        if object.get("kind")? != "Status" || object.get("apiVersion")? != "v1" {
            return None;
        }
        let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            status: text("status").into(),
            message: text("message"),
            reason: text("reason").into(),
            details: object.get("details").map(|details| details.to_string().into()),
            code,
        })
    }
}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> Self {
        let details = status.details.as_ref().map(|_| status.to_value()["details"].to_string().into());
        Self {
            status: Cow::Borrowed("Failure"),
            message: status.message.clone(),
            reason: match &status.custom_reason {
                Some(reason) => Cow::Owned(reason.to_string()),
                None => Cow::Borrowed(status.reason.as_str()),
            },
            details,
            code: status.code,
        }
    }
}

/// Returns the addresses of a client: those that proxies tell, and the peer of the connection.
pub fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<IpAddr> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut addresses: Vec<IpAddr> =
        text(X_FORWARDED_FOR).split(',').filter_map(|part| part.trim().parse().ok()).collect();
    if let Ok(real) = text(X_REAL_IP).trim().parse()
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    // The peer cannot be forged: it is always the last.
    if let Some(peer) = peer.map(|peer| peer.to_canonical())
        && addresses.last() != Some(&peer)
    {
        addresses.push(peer);
    }
    addresses
}

impl Event {
    /// Returns an event of a request that was just received.
    pub fn new(
        level: Level,
        id: HeaderValue,
        uri: Uri,
        attributes: Arc<Attributes>,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
        received: Time,
    ) -> Self {
        Self {
            level,
            id,
            uri,
            attributes,
            user: None,
            impersonated: None,
            impersonation_constraint: None,
            source_ips: source_ips(headers, peer),
            user_agent: headers.get(header::USER_AGENT).cloned(),
            object: ObjectFacts::default(),
            response: None,
            request_object: None,
            response_object: None,
            received,
            annotations: Annotations::default(),
        }
    }

    /// Encodes the event of a stage as one line of JSON, without its newline, at the end of `line`.
    pub(crate) fn encode(&self, stage: Stage, now: Time, objects: Objects, line: &mut Vec<u8>) {
        let objects_bytes = |object: &Option<Bytes>| object.as_ref().map_or(0, Bytes::len);
        line.reserve(1024);
        if objects == Objects::Include {
            line.reserve(1024 + objects_bytes(&self.request_object) + objects_bytes(&self.response_object));
        }
        let mut line = Writer(line);
        line.raw("{");
        line.raw(TYPE_META);
        line.raw("\"level\":\"");
        line.raw(self.level.as_str());
        line.raw("\",\"auditID\":");
        line.bytes_text(self.id.as_bytes());
        line.raw(",\"stage\":\"");
        line.raw(stage.as_str());
        line.raw("\",\"requestURI\":");
        line.text(self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str));
        line.raw(",\"verb\":");
        line.text(self.attributes.verb.as_str());
        line.raw(",\"user\":");
        line.user(self.user.as_deref());
        if let Some(user) = &self.impersonated {
            line.raw(",\"impersonatedUser\":");
            line.user(Some(user));
        }
        if let Some(constraint) = &self.impersonation_constraint {
            line.raw(",\"authenticationMetadata\":{\"impersonationConstraint\":");
            line.text(constraint);
            line.raw("}");
        }
        for (index, address) in self.source_ips.iter().enumerate() {
            line.raw(if index == 0 { ",\"sourceIPs\":[\"" } else { ",\"" });
            line.display(address);
            line.raw(if index + 1 == self.source_ips.len() { "\"]" } else { "\"" });
        }
        self.encode_user_agent(&mut line);
        self.encode_object_reference(&mut line);
        if let Some(response) = &self.response {
            line.raw(",\"responseStatus\":{\"metadata\":{}");
            line.optional("status", &response.status);
            line.optional("message", &response.message);
            line.optional("reason", &response.reason);
            if let Some(details) = &response.details {
                line.raw(",\"details\":");
                line.raw(details);
            }
            if response.code != 0 {
                line.raw(",\"code\":");
                line.display(&response.code);
            }
            line.raw("}");
        }
        if objects == Objects::Include {
            let recorded =
                [("requestObject", &self.request_object), ("responseObject", &self.response_object)];
            for (field, object) in recorded {
                if let Some(object) = object {
                    line.raw(",\"");
                    line.raw(field);
                    line.raw("\":");
                    line.0.extend_from_slice(object);
                }
            }
        }
        line.raw(",\"requestReceivedTimestamp\":\"");
        line.time(self.received);
        line.raw("\",\"stageTimestamp\":\"");
        line.time(if stage == Stage::RequestReceived { self.received } else { now });
        line.raw("\"");
        self.encode_annotations(&mut line, objects);
        line.raw("}");
    }

    fn encode_user_agent(&self, line: &mut Writer<'_>) {
        let Some(agent) =
            self.user_agent.as_ref().map(HeaderValue::as_bytes).filter(|agent| !agent.is_empty())
        else {
            return;
        };
        line.raw(",\"userAgent\":");
        match agent.get(..USER_AGENT_BYTES_MAX).filter(|start| start.len() < agent.len()) {
            Some(start) => line.text(&format!("{}...TRUNCATED", String::from_utf8_lossy(start))),
            None => line.bytes_text(agent),
        }
    }

    fn encode_object_reference(&self, line: &mut Writer<'_>) {
        let attributes = &self.attributes;
        if !attributes.is_resource_request {
            return;
        }
        line.raw(",\"objectRef\":{\"resource\":");
        line.text(&attributes.resource);
        line.optional("namespace", or_else(namespace_of(attributes), &self.object.namespace));
        line.optional("name", or_else(attributes.object_name(), &self.object.name));
        line.optional("uid", &self.object.uid);
        line.optional("apiGroup", &attributes.group);
        line.optional("apiVersion", &attributes.version);
        line.optional("resourceVersion", &self.object.resource_version);
        line.optional("subresource", attributes.subresource_name());
        line.raw("}");
    }

    fn encode_annotations(&self, line: &mut Writer<'_>, objects: Objects) {
        let truncated = (objects == Objects::Truncate).then(|| {
            let mut annotations = self.annotations.clone();
            annotations.add(TRUNCATED, "true");
            annotations
        });
        let annotations = &truncated.as_ref().unwrap_or(&self.annotations).0;
        for (index, (key, value)) in annotations.iter().enumerate() {
            line.raw(if index == 0 { ",\"annotations\":{" } else { "," });
            line.text(key);
            line.raw(":");
            line.text(value);
        }
        if !annotations.is_empty() {
            line.raw("}");
        }
    }

    /// Formats the event of a stage as one line of text: Kubernetes' legacy format.
    pub(crate) fn legacy(&self, stage: Stage) -> Vec<u8> {
        let quoted = |text: &str| orlop_api::go_text::quote(text);
        let groups =
            |groups: &[String]| groups.iter().map(|group| quoted(group)).collect::<Vec<_>>().join(",");
        let none = || "<none>".to_owned();
        let (user, user_groups) = match self.user.as_deref().filter(|user| !user.name.is_empty()) {
            Some(user) if user.groups.is_empty() => (user.name.clone(), none()),
            Some(user) => (user.name.clone(), groups(&user.groups)),
            None => (none(), none()),
        };
        let (acting, acting_groups) = match &self.impersonated {
            Some(user) => (user.name.clone(), groups(&user.groups)),
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
        };
        let namespace = match (self.attributes.is_resource_request, namespace_of(&self.attributes)) {
            (true, namespace) if !namespace.is_empty() => namespace.to_owned(),
            _ => none(),
        };
        let response =
            self.response.as_ref().map_or_else(|| "<deferred>".to_owned(), |status| status.code.to_string());
        let ip = self.source_ips.first().map_or_else(|| "<unknown>".to_owned(), IpAddr::to_string);
        let agent = self.user_agent.as_ref().and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let uri = self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} \
             uri={} response=\"{response}\"",
            self.received.to_micro(),
            quoted(self.id.to_str().unwrap_or_default()),
            quoted(stage.as_str()),
            quoted(&ip),
            quoted(self.attributes.verb.as_str()),
            quoted(&user),
            quoted(&user_groups),
            quoted(&acting),
            quoted(&acting_groups),
            quoted(agent),
            quoted(&namespace),
            quoted(uri),
        )
        .into_bytes()
    }
}

/// Objects in an encoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objects {
    /// As recorded.
    Include,
    /// Left out for their size.
    Truncate,
}

/// Returns the first text, or the second if it is empty.
fn or_else<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

/// A line of JSON. Writing to memory does not fail.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn text(&mut self, text: &str) {
        let _ = serde_json::to_writer(&mut *self.0, text);
    }

    /// Writes a header's value, which may be any bytes.
    fn bytes_text(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.text(text),
            Err(_) => self.text(&String::from_utf8_lossy(bytes)),
        }
    }

    fn display(&mut self, value: &dyn std::fmt::Display) {
        let _ = std::io::Write::write_fmt(self.0, format_args!("{value}"));
    }

    fn time(&mut self, time: Time) {
        time.push_micro(self.0);
    }

    /// Writes a field unless it is empty.
    fn optional(&mut self, field: &str, text: &str) {
        if !text.is_empty() {
            self.raw(",\"");
            self.raw(field);
            self.raw("\":");
            self.text(text);
        }
    }

    fn user(&mut self, user: Option<&UserInfo>) {
        let start = self.0.len();
        if let Some(user) = user {
            self.optional("username", &user.name);
            self.optional("uid", &user.uid);
            if !user.groups.is_empty() {
                self.raw(",\"groups\":");
                let _ = serde_json::to_writer(&mut *self.0, &user.groups);
            }
            if !user.extra.is_empty() {
                self.raw(",\"extra\":");
                let _ = serde_json::to_writer(&mut *self.0, &user.extra);
            }
        }
        // The first field's comma becomes the opening brace.
        match self.0.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => self.raw("{"),
        }
        self.raw("}");
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use orlop_api::{group_version::GroupResource, query::Query};
    use serde_json::json;

    use super::*;

    fn event(method: Method, uri: &'static str) -> Event {
        let uri = Uri::from_static(uri);
        let attributes = Attributes::of(&method, uri.path(), &Query::parse(uri.query().unwrap_or_default()));
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kubectl/v1.37"));
        let received = Time { unix_seconds: 1_700_000_000, nanoseconds: 123_456_789 };
        let peer = Some([127, 0, 0, 1].into());
        let id = HeaderValue::from_static("1-2");
        let mut event = Event::new(Level::Metadata, id, uri, attributes.into(), &headers, peer, received);
        event.user = Some(Arc::new(UserInfo::authenticated("ann", [])));
        event
    }

    fn encoded(event: &Event, stage: Stage, objects: Objects) -> String {
        let now = Time { unix_seconds: 1_700_000_001, nanoseconds: 0 };
        let mut line = Vec::new();
        event.encode(stage, now, objects, &mut line);
        String::from_utf8(line).unwrap()
    }

    fn decoded(event: &Event, stage: Stage) -> Value {
        serde_json::from_str(&encoded(event, stage, Objects::Include)).unwrap()
    }

    #[test]
    fn event_has_the_fields_and_order_of_kubernetes() {
        let mut get = event(Method::GET, "/api/v1/namespaces/a/pods/x?pretty=true");
        get.response = Some(ResponseStatus::code(200));
        get.annotations.add("authorization.k8s.io/reason", "");
        get.annotations.add("authorization.k8s.io/decision", "allow");
        get.annotations.add("authorization.k8s.io/decision", "forbid");
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1-2","#,
            r#""stage":"RequestReceived","requestURI":"/api/v1/namespaces/a/pods/x?pretty=true","verb":"get","#,
            r#""user":{"username":"ann","groups":["system:authenticated"]},"sourceIPs":["127.0.0.1"],"#,
            r#""userAgent":"kubectl/v1.37","#,
            r#""objectRef":{"resource":"pods","namespace":"a","name":"x","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":200},"#,
            r#""requestReceivedTimestamp":"2023-11-14T22:13:20.123456Z","#,
            r#""stageTimestamp":"2023-11-14T22:13:20.123456Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#,
        );
        assert_eq!(encoded(&get, Stage::RequestReceived, Objects::Include), expected);
    }

    #[test]
    fn failures_carry_the_status_and_its_details() {
        let mut get = event(Method::GET, "/apis/apps/v1/namespaces/a/deployments/x/scale");
        get.response = Some((&Status::not_found(&GroupResource::new("apps", "deployments"), "x")).into());
        get.impersonated = Some(Arc::new(UserInfo::service_account("a", "b")));
        get.request_object = Some(Bytes::from_static(b"{\"a\":1}"));
        let value = decoded(&get, Stage::ResponseComplete);
        assert_eq!(
            value["responseStatus"],
            json!({"metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
                   "message": "deployments.apps \"x\" not found",
                   "details": {"name": "x", "group": "apps", "kind": "deployments"}})
        );
        assert_eq!(
            value["objectRef"],
            json!({"resource": "deployments", "namespace": "a", "name": "x", "apiGroup": "apps",
                   "apiVersion": "v1", "subresource": "scale"})
        );
        assert_eq!(value["impersonatedUser"]["username"], "system:serviceaccount:a:b");
        assert_eq!(value["requestObject"], json!({"a": 1}));
        assert_eq!(value["stageTimestamp"], "2023-11-14T22:13:21.000000Z");
        let cut: Value =
            serde_json::from_str(&encoded(&get, Stage::ResponseComplete, Objects::Truncate)).unwrap();
        assert_eq!(
            (cut.get("requestObject"), &cut["annotations"]["audit.k8s.io/truncated"]),
            (None, &json!("true"))
        );
    }

    #[test]
    fn hostile_text_stays_one_line_of_json() {
        let mut post = event(Method::POST, "/api/v1/namespaces/a/pods");
        post.user = None;
        post.id = HeaderValue::from_bytes(b"\"\xff\\x").unwrap();
        post.user_agent = Some(HeaderValue::from_bytes(&[b'"'; 2000]).unwrap());
        post.object.name = "a\nb".to_owned();
        let line = encoded(&post, Stage::ResponseComplete, Objects::Include);
        assert!(!line.contains('\n'));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["user"], json!({}));
        assert_eq!(value["objectRef"]["name"], "a\nb");
        assert!(value["userAgent"].as_str().unwrap().ends_with("...TRUNCATED"));
    }

    #[test]
    fn addresses_of_proxies_come_before_the_peer() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("10.0.0.1, nonsense, 10.0.0.2"));
        headers.insert("x-real-ip", HeaderValue::from_static("10.0.0.1"));
        let ips = |peer: [u8; 4]| {
            source_ips(&headers, Some(peer.into())).iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(ips([10, 0, 0, 3]), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(ips([10, 0, 0, 2]), ["10.0.0.1", "10.0.0.2"]);
        assert!(source_ips(&HeaderMap::new(), None).is_empty());
    }

    #[test]
    fn legacy_format_is_one_line_of_text() {
        let get = event(Method::GET, "/api/v1/namespaces/a/pods/x");
        let line = String::from_utf8(get.legacy(Stage::RequestReceived)).unwrap();
        assert_eq!(
            line,
            "2023-11-14T22:13:20.123456Z AUDIT: id=\"1-2\" stage=\"RequestReceived\" ip=\"127.0.0.1\" method=\"get\" \
             user=\"ann\" groups=\"\\\"system:authenticated\\\"\" as=\"<self>\" asgroups=\"<lookup>\" \
             user-agent=\"kubectl/v1.37\" namespace=\"a\" uri=\"/api/v1/namespaces/a/pods/x\" response=\"<deferred>\""
        );
    }
}
