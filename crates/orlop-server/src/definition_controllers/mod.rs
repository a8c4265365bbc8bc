//! Controllers of CustomResourceDefinitions, as in Kubernetes' apiextensions-apiserver.
//!
//! - [`informer`]: watches definitions and puts their kinds into the registry;
//! - [`finalizer`]: deletes the objects of a terminating definition;
//! - [`naming`]: accepts names that another definition released.

mod finalizer;
mod informer;
mod naming;

use std::sync::Arc;

use orlop_api::user::UserInfo;

pub(crate) use informer::start;

use crate::{
    cluster::Cluster,
    definitions::{GROUP, RESOURCE, VERSION},
    endpoints::Request,
    http::{negotiation::Negotiated, query::Query, warnings::Warnings},
    registry::Kind,
    request::{Attributes, Subresource, Verb},
};

/// Returns a request of the server itself about an object of a kind.
pub(crate) fn request(cluster: &Arc<Cluster>, kind: Arc<Kind>, namespace: &str, name: &str) -> Request {
    Request {
        cluster: cluster.clone(),
        attributes: Arc::new(Attributes {
            user: Arc::new(UserInfo::master("system:apiserver")),
            verb: Verb::Update,
            is_resource_request: true,
            group: kind.gvk.group.clone(),
            version: kind.gvk.version.clone(),
            resource: kind.resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }),
        kind,
        query: Query::default(),
        method: http::Method::default(),
        uri: http::Uri::default(),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
        negotiated: Negotiated::default(),
        audit: None,
        deadline: None,
        warnings: Warnings::default(),
        upgrade: None,
    }
}

/// Returns a request of the server itself about the status of a definition. Its spec is not validated again,
/// so that a definition which would no longer be accepted can still be finalized.
fn definition_request(cluster: &Arc<Cluster>, name: &str) -> Option<Request> {
    let kind = cluster.objects.registry.kinds().get(GROUP, VERSION, RESOURCE)?.clone();
    let mut request = request(cluster, kind, "", name);
    Arc::make_mut(&mut request.attributes).subresource = Some(Subresource::Status);
    Some(request)
}
