//! Handlers of requests: a file per verb, and the steps that verbs share.
//!
//! A write goes decode → prepare (defaults, metadata, managed fields, strategy, validation) → admission →
//! preconditions → one transaction. A read copies stored bytes into the response.

mod admission;
pub(crate) mod answer;
pub(crate) mod apply;
pub(crate) mod changes;
mod create;
pub(crate) mod decoder;
pub(crate) mod delete;
mod delete_collection;
pub(crate) mod dependents;
pub(crate) mod discovery;
mod get;
pub mod health;
mod isolation;
pub(crate) mod list;
mod list_encoder;
mod list_stream;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod patch;
mod preconditions;
pub(crate) mod prepare;
mod remote;
pub(crate) mod reviews;
pub(crate) mod routes;
mod subresources;
pub(crate) mod update;
mod watch;
pub(crate) mod written;

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response};
use orlop_api::{protobuf, status::Status, table::IncludeObject};

use crate::{
    auth::User,
    cluster::Cluster,
    http::{
        body::Body,
        negotiation::{JSON_STREAM, MEDIA_TYPES, Negotiated, Offers, PROTOBUF_STREAM, Transform, negotiate},
        query::Query,
        warnings::Warnings,
    },
    object::now,
    registry::{Kind, RequestContext, has_protobuf},
    request::ResourceInfo,
};

/// One request, as verbs see it.
#[derive(Debug)]
pub struct Request {
    /// Where it goes.
    pub cluster: Arc<Cluster>,
    /// Of which kind it speaks.
    pub kind: Arc<Kind>,
    /// What it is about.
    pub about: ResourceInfo,
    /// Its query.
    pub query: Query,
    /// Its path and query, as they came.
    pub uri: http::Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// How to answer.
    pub negotiated: Negotiated,
    /// Who asks.
    pub user: Arc<User>,
    /// What the user is to be warned about.
    pub warnings: Warnings,
}

impl Request {
    /// Returns the facts about this request that strategies may use.
    pub(crate) fn context(&self) -> RequestContext<'_> {
        RequestContext { user: &self.user, now: now() }
    }

    /// Remembers a warning for the answer; each is sent once.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.add(warning);
    }

    /// A request about something else, made on the way of this one and for the same user.
    pub(crate) fn aside(&self, kind: Arc<Kind>, about: ResourceInfo) -> Self {
        Self {
            cluster: self.cluster.clone(),
            kind,
            about,
            query: Query::default(),
            uri: http::Uri::default(),
            headers: self.headers.clone(),
            body: Bytes::new(),
            negotiated: Negotiated::default(),
            user: self.user.clone(),
            warnings: self.warnings.clone(),
        }
    }

    /// Who writes, where a request does not say.
    pub(crate) fn user_agent(&self) -> &str {
        self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Chooses how a verb may answer.
pub fn negotiate_for(
    verb: &str,
    kind: &Kind,
    subresource: &str,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Negotiated, Status> {
    let negotiated = negotiate(headers, query.get("pretty"), offers(verb, kind, subresource))?;
    let include = query.text("includeObject");
    if matches!(negotiated.transform, Transform::Table(_)) && IncludeObject::parse(include).is_none() {
        return Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: \
             must be 'Metadata', 'Object', 'None', or empty"
        )));
    }
    Ok(negotiated)
}

/// Does what a request asks.
pub async fn run(verb: &str, request: Request) -> Result<Response<Body>, Status> {
    let subresource = request.about.subresource.clone();
    let allowed = match subresource.as_str() {
        "" => request.kind.allows(verb),
        name => match request.kind.subresource(name) {
            None => return Err(Status::resource_unknown()),
            Some(subresource) => subresource.verbs.iter().any(|allowed| allowed == verb),
        },
    };
    if !allowed {
        return Err(Status::method_unknown());
    }
    if let Some(remote) = request.kind.storage.elsewhere() {
        return Box::pin(remote::forward(remote, verb, &request)).await;
    }
    // Each verb in memory of its own: otherwise every request would be as large as the largest of them, and that
    // much would be moved from filter to filter.
    let work: Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send + '_>> =
        match (verb, subresource.as_str()) {
            ("list", "") => Box::pin(list::list(request)),
            ("watch", "") => Box::pin(watch::watch(request)),
            ("create", "") if reviews::is_review(&request) => Box::pin(reviews::create(&request)),
            ("create", "") if subresources::is_binding(&request.kind) => {
                Box::pin(subresources::bind(request))
            }
            ("create", "") => Box::pin(create::create(&request)),
            ("get", name) if isolation::is_object(name) => Box::pin(get::get(&request)),
            ("update", name) if isolation::is_object(name) => Box::pin(update::replace(&request)),
            ("patch", name) if isolation::is_object(name) => Box::pin(patch::patch(&request)),
            ("delete", "") => Box::pin(delete::delete(&request)),
            ("deletecollection", "") => Box::pin(delete_collection::delete_collection(request)),
            (verb, name) => Box::pin(subresources::run(verb, name, &request)),
        };
    work.await
}

/// Representations that the router of kube-apiserver lists for lists of built-in kinds and for logs.
const ROUTED_LIST: &[&str] =
    &["application/json", "application/yaml", protobuf::MEDIA_TYPE, JSON_STREAM, PROTOBUF_STREAM];
const ROUTED_LOG: &[&str] = &["text/plain", "application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Returns the representations of a kind that a verb offers.
fn offers(verb: &str, kind: &Kind, subresource: &str) -> Offers {
    // A review, which is only ever created, has no columns.
    let read = kind.allows("get") || kind.allows("list");
    let transforms = read
        && matches!(
            verb,
            "get" | "list" | "watch" | "create" | "update" | "patch" | "delete" | "deletecollection"
        );
    let protobuf = has_protobuf(kind);
    let routed = match verb {
        _ if !protobuf => &[],
        "list" | "watch" => ROUTED_LIST,
        _ if subresource == "log" => ROUTED_LOG,
        _ => MEDIA_TYPES,
    };
    Offers { transforms, protobuf, routed }
}
