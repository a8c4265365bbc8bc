//! Kinds that another API server keeps. Requests for them pass the whole chain here (who may do what is
//! decided here), and are then sent on; the answer comes back as it is, piece by piece.

use http::{Method, Request, Response, Uri, header, uri::PathAndQuery};
use orlop_api::status::Status;

use crate::{http::body::Body, registry::remote::Remote};

/// What of a request's headers is sent on: how to read and answer it, and who says so. Credentials are for
/// this server alone.
const SENT_ON: &[header::HeaderName] = &[header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT];

/// Has a request answered elsewhere.
pub(crate) async fn forward(
    remote: &dyn Remote,
    verb: &str,
    request: &super::Request,
) -> Result<Response<Body>, Status> {
    let method = match verb {
        "create" => Method::POST,
        "update" => Method::PUT,
        "patch" => Method::PATCH,
        "delete" | "deletecollection" => Method::DELETE,
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
    // These are about the other connection.
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}
