//! Requests that are sent on to an extension API server, and its responses.
//!
//! Bodies are streamed both ways. What belongs to one connection, and what are credentials for this server, is left out;
//! the user is named in headers instead. A redirect is refused, since it could send the client anywhere.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use hyper::body::Incoming;
use orlop_api::user::UserInfo;
use tokio::time::{Instant, Sleep};

use crate::{
    client::{Client, RequestBody, Unreachable},
    identity,
};

/// Headers of one connection.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers with credentials for this server, and its name.
const OWN: &[&str] = &["authorization", "cookie", "host"];
/// Headers of cross-origin requests, which this server answers itself.
const CROSS_ORIGIN: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A request to send on.
#[derive(Debug)]
pub struct Forwarded<'a> {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// Headers of the client.
    pub headers: &'a HeaderMap,
    /// Address of the client.
    pub peer: Option<std::net::IpAddr>,
    /// The user.
    pub user: &'a UserInfo,
    /// Id of the request in the audit log.
    pub audit_id: &'a str,
    /// The body.
    pub body: RequestBody,
}

/// Failure of a request that was sent on: a status and a plain text, as kube-aggregator answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProxyError {
    /// The status.
    pub status: StatusCode,
    /// The text.
    pub message: String,
}

impl ProxyError {
    /// Returns the failure of a server that is not available.
    pub fn unavailable() -> Self {
        Self::with(StatusCode::SERVICE_UNAVAILABLE, "service unavailable".to_owned())
    }

    fn with(status: StatusCode, message: String) -> Self {
        Self { status, message }
    }

    fn unreachable(why: &dyn std::fmt::Display) -> Self {
        Self::with(StatusCode::SERVICE_UNAVAILABLE, format!("error trying to reach service: {why}"))
    }
}

/// Returns true if a request asks to switch protocols.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE)
        && values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Sends a request on. A response that switches protocols is returned with its connection.
pub async fn forward(
    client: &Client,
    address: &(String, u16),
    forwarded: Forwarded<'_>,
) -> Result<Response<Incoming>, ProxyError> {
    let upgrades = is_upgrade(forwarded.headers);
    client.check().map_err(|Unreachable(why)| ProxyError::with(StatusCode::INTERNAL_SERVER_ERROR, why))?;
    let mut request = Request::new(forwarded.body);
    *request.method_mut() = forwarded.method;
    *request.uri_mut() = forwarded.path.parse().map_err(|error| ProxyError::unreachable(&error))?;
    *request.headers_mut() =
        sent_headers(forwarded.headers, forwarded.user, forwarded.peer, forwarded.audit_id, upgrades)?;
    let response = client.send(address, request, upgrades).await;
    let mut response = response.map_err(|why| ProxyError::unreachable(&why))?;
    let status = response.status();
    if status.is_redirection() && response.headers().contains_key(header::LOCATION) {
        let why = "the backend attempted to redirect this request, which is not permitted";
        return Err(ProxyError::with(StatusCode::BAD_GATEWAY, why.to_owned()));
    }
    match (upgrades, status) {
        (true, StatusCode::SWITCHING_PROTOCOLS) => return Ok(response),
        (true, status) if status.as_u16() < 400 => {
            let why = format!("invalid upgrade response: status code {}", status.as_u16());
            return Err(ProxyError::with(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        (false, StatusCode::SWITCHING_PROTOCOLS) => {
            return Err(ProxyError::unreachable(&"unexpected switch of protocols"));
        }
        _ => {}
    }
    let headers = response.headers_mut();
    remove_hop_by_hop(headers);
    remove(headers, CROSS_ORIGIN);
    Ok(response)
}

/// Returns the headers to send.
fn sent_headers(
    received: &HeaderMap,
    user: &UserInfo,
    peer: Option<std::net::IpAddr>,
    audit_id: &str,
    upgrades: bool,
) -> Result<HeaderMap, ProxyError> {
    let mut headers = received.clone();
    let protocol = headers.get(header::UPGRADE).cloned();
    remove_hop_by_hop(&mut headers);
    remove(&mut headers, OWN);
    if let Some(protocol) = protocol.filter(|_| upgrades) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    identity::set_user(&mut headers, user).map_err(|error| ProxyError::unreachable(&error))?;
    if let Some(peer) = peer {
        let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let all = earlier.map(str::to_owned).chain([peer.to_string()]).collect::<Vec<_>>().join(", ");
        if let Ok(all) = HeaderValue::try_from(all) {
            headers.insert(FORWARDED_FOR, all);
        }
    }
    if let Ok(id) = HeaderValue::from_str(audit_id)
        && !audit_id.is_empty()
    {
        headers.insert(AUDIT_ID, id);
    }
    if let Some(span) = orlop_trace::current().and_then(|span| span.traceparent().parse().ok()) {
        headers.insert("traceparent", span);
    }
    Ok(headers)
}

/// Removes the headers of one connection, and those that it names so.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned()).collect();
    remove(headers, &named);
    remove(headers, HOP_BY_HOP);
}

fn remove(headers: &mut HeaderMap, names: &[impl AsRef<str>]) {
    for name in names {
        headers.remove(name.as_ref());
    }
}

/// A response body was not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutOff {
    /// The extension API server ended it.
    #[error("the extension API server ended the response")]
    Ended,
    /// It took too long.
    #[error("the response was not complete within the request's time")]
    Late,
}

/// A response body that must be complete within a time, if the request is not long-running.
#[derive(Debug)]
pub struct TimedBody {
    body: Incoming,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    /// Returns a body with a limit.
    pub fn new(body: Incoming, limit: Option<Duration>) -> Self {
        let deadline = limit.map(|limit| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        Self { body, deadline }
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(CutOff::Late)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|_| CutOff::Ended)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn sent(headers: &[(&'static str, &'static str)], upgrades: bool) -> Vec<String> {
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        let peer = Some([10, 0, 0, 7].into());
        let sent = sent_headers(&map(headers), &user, peer, "id-1", upgrades).unwrap();
        let mut told: Vec<String> =
            sent.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        told.sort();
        told
    }

    #[test]
    fn credentials_and_hop_by_hop_headers_are_left_out() {
        let headers = [
            ("authorization", "Bearer secret"),
            ("cookie", "session=secret"),
            ("connection", "keep-alive, x-secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("host", "api.example.org"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "192.0.2.1"),
            ("accept", "application/json"),
        ];
        assert_eq!(
            sent(&headers, false),
            [
                "accept: application/json",
                "audit-id: id-1",
                "x-forwarded-for: 192.0.2.1, 10.0.0.7",
                "x-remote-user: ann"
            ]
        );
    }

    #[test]
    fn upgrades_keep_their_protocol() {
        let headers = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        assert!(is_upgrade(&map(&headers)) && !is_upgrade(&map(&[("upgrade", "websocket")])));
        let told = sent(&headers, true);
        assert!(told.contains(&"connection: Upgrade".to_owned()), "{told:?}");
        assert!(told.contains(&"upgrade: websocket".to_owned()), "{told:?}");
        assert!(!sent(&headers, false).iter().any(|header| header.starts_with("upgrade")));
    }
}
