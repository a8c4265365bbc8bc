//! Forwards requests for kinds that another API server stores. They pass all filters here, authorization too; the
//! response is streamed back unchanged.

use http::{Method, Request, Response, Uri, header, uri::PathAndQuery};
use orlop_api::status::Status;

use crate::{http::body::Body, registry::remote::Remote, request::Verb};

/// Headers that are forwarded. Credentials are for this server only.
const SENT_ON: &[header::HeaderName] = &[header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT];

/// Forwards a request.
pub(crate) async fn forward(remote: &dyn Remote, request: &super::Request) -> Result<Response<Body>, Status> {
    let method = match request.attributes.verb {
        Verb::Create => Method::POST,
        Verb::Update => Method::PUT,
        Verb::Patch => Method::PATCH,
        Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        _ => Method::GET,
    };
    let path = request.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut sent = Request::new(request.body.clone());
    *sent.method_mut() = method;
    *sent.uri_mut() = Uri::from(path);
    for name in SENT_ON {
        for value in request.headers.get_all(name) {
            sent.headers_mut().append(name, value.clone());
        }
    }
    let mut response = remote.send(sent).await?;
    // Hop-by-hop headers.
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}
