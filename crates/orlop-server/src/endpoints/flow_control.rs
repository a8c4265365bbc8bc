//! Dumps of flow control: `/debug/api_priority_and_fairness/`.

use bytes::Bytes;
use http::Response;
use orlop_flow_control::{dump_priority_levels, dump_queues, dump_requests};

use crate::{
    cluster::Cluster,
    http::{
        body::Body,
        query::Query,
        response::{self, not_found},
    },
};

/// Answers with a dump. Without fairness there is none.
pub(super) fn dump(cluster: &Cluster, name: &str, query: &Query) -> Response<Body> {
    let controller = &cluster.flow_control.controller;
    let text = match name {
        _ if cluster.flow_control.in_flight.is_some() => return not_found(),
        "dump_priority_levels" => dump_priority_levels(controller),
        "dump_queues" => dump_queues(controller),
        "dump_requests" => dump_requests(controller, !query.text("includeRequestDetails").is_empty()),
        _ => return not_found(),
    };
    response::bytes(200, "text/plain; charset=utf-8", Bytes::from(text))
}
