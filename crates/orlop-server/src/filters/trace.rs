//! Trace filter: the span of a request.

use std::{sync::Arc, time::Instant};

use http::request::Parts;
use orlop_api::user::MASTERS;
use orlop_trace::{Span, Tracer};

use crate::request::Attributes;

/// Group of clients whose traces are continued, besides the administrators.
const MONITORING: &str = "system:monitoring";

/// Starts the span of an authenticated request; `None` if it is not traced.
pub(crate) fn start(
    tracer: Option<&Arc<Tracer>>,
    request: &Parts,
    attributes: &Attributes,
    started: Instant,
) -> Option<Span> {
    let user = &attributes.user;
    let is_trusted = user.is_in_group(MASTERS) || user.is_in_group(MONITORING);
    let mut span = tracer?.start(&request.headers, is_trusted, name(request, attributes), started)?;
    span.set("http.request.method", request.method.to_string());
    span.set("url.path", request.uri.path().to_owned());
    let agent = request.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    if let Some(agent) = agent {
        span.set("user_agent.original", agent.to_owned());
    }
    // The filters until here.
    drop(span.active().child("authentication", started));
    Some(span)
}

/// Returns the name of a span, as in Kubernetes: names of objects and namespaces are left out.
fn name(request: &Parts, attributes: &Attributes) -> String {
    let Attributes { group, version, resource, namespace, name, .. } = attributes;
    let method = &request.method;
    if !attributes.is_resource_request {
        return method.to_string();
    }
    let start = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let scope = if namespace.is_empty() { "" } else { "/namespaces/{:namespace}" };
    let object = if name.is_empty() { "" } else { "/{:name}" };
    let subresource = match attributes.subresource_name() {
        "" => String::new(),
        subresource => format!("/{subresource}"),
    };
    format!("{method} {start}{scope}/{resource}{object}{subresource}")
}

/// Ends the span of a request with its result.
pub(crate) fn end(span: Option<Span>, code: u16) {
    if let Some(mut span) = span {
        span.set("http.response.status_code", i64::from(code));
        if code >= 500 {
            span.fail(format!("{code}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use orlop_api::query::Query;

    use super::*;

    #[test]
    fn span_names_leave_out_names() {
        for (uri, expected) in [
            ("/api/v1/namespaces/a/pods/x/log", "GET /api/v1/namespaces/{:namespace}/pods/{:name}/log"),
            ("/apis/apps/v1/deployments", "GET /apis/apps/v1/deployments"),
            ("/healthz", "GET"),
        ] {
            let parts = Request::get(uri).body(()).unwrap().into_parts().0;
            let attributes = Attributes::of(&parts.method, parts.uri.path(), &Query::default());
            assert_eq!(name(&parts, &attributes), expected);
        }
    }
}
