//! The Cluster service: one member, and membership is fixed. To scale out, start more servers on the same PostgreSQL
//! database.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::{
    errors::MEMBER_NOT_FOUND,
    node::Node,
    pb::etcdserverpb::{
        Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
        MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
        MemberUpdateRequest, MemberUpdateResponse, cluster_server::Cluster,
    },
};

/// Implements `etcdserverpb.Cluster`.
#[derive(Clone, Debug)]
pub(crate) struct ClusterService {
    pub(crate) node: Arc<Node>,
}

impl ClusterService {
    /// Returns the error of changing a member.
    fn change_error(&self, id: u64) -> Status {
        if id == self.node.identity.member_id { membership_is_fixed() } else { MEMBER_NOT_FOUND.into() }
    }
}

fn membership_is_fixed() -> Status {
    Status::unimplemented("orlop: membership is fixed; start more servers on the same PostgreSQL instead")
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        _: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let Node { identity, options, .. } = &*self.node;
        let member = Member {
            id: identity.member_id,
            name: options.name.clone(),
            // There are no peers, but etcdctl prints the column.
            peer_ur_ls: options.client_urls.clone(),
            client_ur_ls: options.client_urls.clone(),
            is_learner: false,
        };
        Ok(Response::new(MemberListResponse { header: self.node.header_now().await?, members: vec![member] }))
    }

    async fn member_add(&self, _: Request<MemberAddRequest>) -> Result<Response<MemberAddResponse>, Status> {
        Err(membership_is_fixed())
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        Err(self.change_error(request.into_inner().id))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        Err(self.change_error(request.into_inner().id))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        Err(self.change_error(request.into_inner().id))
    }
}
