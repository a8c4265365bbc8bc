//! Handlers of requests: a file per verb, and the steps that verbs share.
//!
//! A write goes decode → prepare (defaults, metadata, managed fields, strategy, validation) → admission →
//! preconditions → one transaction. A read copies stored bytes into the response.

mod access_reviews;
mod admission;
pub(crate) mod answer;
pub(crate) mod apply;
pub(crate) mod changes;
pub(crate) mod create;
pub(crate) mod decoder;
pub(crate) mod delete;
mod delete_collection;
mod delete_unreadable;
pub(crate) mod dependents;
mod device_access;
pub(crate) mod discovery;
mod escalation;
mod flow_control;
mod get;
pub mod health;
mod isolation;
pub(crate) mod list;
mod list_encoder;
mod list_stream;
mod listing;
pub(crate) mod metrics;
pub(crate) mod offload;
pub(crate) mod openapi;
mod parameter_access;
pub(crate) mod patch;
mod preconditions;
pub(crate) mod prepare;
pub(crate) mod quota;
mod remote;
mod removal;
pub(crate) mod reviews;
pub(crate) mod routes;
mod scale_view;
mod signer_access;
mod subresources;
mod unreadable;
pub(crate) mod update;
mod verb_access;
mod verb_span;
mod watch;
pub(crate) mod written;

use std::{pin::Pin, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, Response};
use hyper::upgrade::OnUpgrade;
use orlop_api::{protobuf, status::Status, table::IncludeObject};

pub(crate) use self::create::create_missing;
use self::offload::Offload;
use crate::{
    auth::Access,
    cluster::Cluster,
    http::{
        body::Body,
        negotiation::{JSON_STREAM, MEDIA_TYPES, Negotiated, Offers, PROTOBUF_STREAM, Transform, negotiate},
        query::Query,
        warnings::Warnings,
    },
    object::now,
    registry::{Kind, RequestContext, has_protobuf},
    request::{Attributes, Subresource, Verb},
};

/// An authorized request for a kind.
#[derive(Debug)]
pub struct Request {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The kind.
    pub kind: Arc<Kind>,
    /// The user, verb, resource, namespace and name.
    pub attributes: Arc<Attributes>,
    /// Query parameters.
    pub query: Query,
    /// Method as received.
    pub method: http::Method,
    /// Path and query as received.
    pub uri: http::Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Encoding and transform of the response.
    pub negotiated: Negotiated,
    /// Warnings for the client.
    pub warnings: Warnings,
    /// Additions to the audit event, if the request is audited.
    pub audit: Option<Arc<orlop_audit::Context>>,
    /// Time at which the request is answered in any case, if it has a limit.
    pub deadline: Option<Instant>,
    /// The connection, once it has switched protocols.
    pub(crate) upgrade: Option<OnUpgrade>,
}

impl Request {
    /// Returns the facts about this request that strategies may use.
    pub(crate) fn context(&self) -> RequestContext<'_> {
        RequestContext { user: &self.attributes.user, now: now() }
    }

    /// Adds a warning to the response, once.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.add(warning);
    }

    /// Returns a request of the same user for another object, which this one needs.
    pub(crate) fn nested(&self, kind: Arc<Kind>, attributes: Attributes) -> Self {
        Self {
            cluster: self.cluster.clone(),
            kind,
            attributes: attributes.into(),
            query: Query::default(),
            method: http::Method::default(),
            uri: http::Uri::default(),
            headers: self.headers.clone(),
            body: Bytes::new(),
            negotiated: Negotiated::default(),
            warnings: self.warnings.clone(),
            audit: None,
            deadline: self.deadline,
            upgrade: None,
        }
    }

    /// Returns the User-Agent header.
    pub(crate) fn user_agent(&self) -> &str {
        self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Negotiates the encoding and transform of a response.
pub(crate) fn negotiate_for(
    attributes: &Attributes,
    kind: &Kind,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Negotiated, Status> {
    let negotiated = negotiate(headers, query.get("pretty"), offers(attributes, kind))?;
    let include = query.text("includeObject");
    if matches!(negotiated.transform, Transform::Table(_)) && IncludeObject::parse(include).is_none() {
        return Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: \
             must be 'Metadata', 'Object', 'None', or empty"
        )));
    }
    Ok(negotiated)
}

/// Runs the verb of a request.
pub(crate) async fn run(
    access: &Arc<Access>,
    offload: &Offload,
    request: Request,
) -> Result<Response<Body>, Status> {
    let Attributes { verb, subresource, .. } = &*request.attributes;
    let allowed = match subresource {
        None => request.kind.allows(verb.as_str()),
        // OPTIONS, which has no verb.
        Some(Subresource::Proxy) if *verb == Verb::none() => true,
        Some(subresource) => match request.kind.subresource(subresource.as_str()) {
            None => return Err(Status::resource_unknown()),
            Some(subresource) => subresource.verbs.iter().any(|allowed| allowed == verb.as_str()),
        },
    };
    if !allowed {
        return Err(Status::method_unknown());
    }
    if let Some(remote) = request.kind.storage.remote_server() {
        return Box::pin(remote::forward(remote, &request)).await;
    }
    let (access, span) = (access.clone(), orlop_trace::current());
    offload.run(request, move |request| verb_span::dispatch_in(span, access, request)).await
}

async fn dispatch(access: Arc<Access>, request: Request) -> Result<Response<Body>, Status> {
    let (verb, subresource) = (request.attributes.verb.clone(), request.attributes.subresource.clone());
    let own_object = subresource.as_ref().is_none_or(Subresource::is_object);
    // Boxed: a request's future would otherwise be as large as that of the largest verb, and moved from filter
    // to filter.
    let work: Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send + '_>> =
        match (verb, subresource) {
            (Verb::List, None) => Box::pin(list::list(request)),
            (Verb::Watch, None) => Box::pin(watch::watch(request)),
            (Verb::Create, None) if reviews::is_review(&request.kind) => {
                Box::pin(reviews::create(&access, &request))
            }
            (Verb::Create, None) if subresources::is_binding(&request.kind) => {
                Box::pin(async move { subresources::bind(&request).await })
            }
            (Verb::Create, None) => Box::pin(create::create(&request)),
            (Verb::Get, _) if own_object => Box::pin(get::get(&request)),
            (Verb::Update, _) if own_object => Box::pin(update::replace(&request)),
            (Verb::Patch, _) if own_object => Box::pin(patch::patch(&request)),
            (Verb::Delete, None) => Box::pin(delete::delete(&request)),
            (Verb::DeleteCollection, None) => Box::pin(delete_collection::delete_collection(request)),
            (_, None) => return Err(Status::method_unknown()),
            (_, Some(_)) => Box::pin(subresources::run(&request)),
        };
    work.await
}

/// Representations that the router of kube-apiserver lists for lists of built-in kinds and for logs.
const ROUTED_LIST: &[&str] =
    &["application/json", "application/yaml", protobuf::MEDIA_TYPE, JSON_STREAM, PROTOBUF_STREAM];
const ROUTED_LOG: &[&str] = &["text/plain", "application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Returns the representations of a kind that a verb offers.
fn offers(attributes: &Attributes, kind: &Kind) -> Offers {
    // A review, which is only ever created, has no columns.
    let read = kind.allows("get") || kind.allows("list");
    let transforms = read && !matches!(attributes.verb, Verb::Proxy | Verb::Other(_));
    let protobuf = has_protobuf(kind);
    let routed = match attributes.verb {
        _ if !protobuf => &[],
        Verb::List | Verb::Watch => ROUTED_LIST,
        _ if attributes.subresource == Some(Subresource::Log) => ROUTED_LOG,
        _ => MEDIA_TYPES,
    };
    Offers { transforms, protobuf, routed }
}
