//! The Maintenance service: status, hashes, snapshots, defragmentation, alarms.

use std::{pin::Pin, sync::Arc};

use futures_util::Stream;
use orlop_store::{KeyRange, Read, Revision};
use tonic::{Request, Response, Status};

use crate::{
    errors::{BAD_LEADER_TRANSFEREE, COMPACTED, status},
    header::TERM,
    node::Node,
    pb::etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse,
        DowngradeInfo, DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse, HashRequest,
        HashResponse, MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, SnapshotResponse,
        StatusRequest, StatusResponse, alarm_request::AlarmAction, maintenance_server::Maintenance,
    },
    snapshot,
};

/// Implements `etcdserverpb.Maintenance`.
#[derive(Clone, Debug)]
pub(crate) struct MaintenanceService {
    pub(crate) node: Arc<Node>,
}

impl MaintenanceService {
    /// Returns a checksum over all keys at a revision, which is the same on every engine and server.
    async fn hash(&self, revision: Option<Revision>) -> Result<(u32, Revision), Status> {
        let mut hasher = crc32fast::Hasher::new();
        let read = Read { revision, ..Read::new(KeyRange::all()) };
        let mut pages = self.node.store.pages(read).map_err(status)?;
        let mut hashed_at = 0;
        while let Some(page) = pages.next().await.map_err(status)? {
            hashed_at = revision.unwrap_or(page.revision);
            for kv in &page.kvs {
                for bytes in [&kv.key, &kv.value] {
                    hasher.update(&(bytes.len() as u64).to_le_bytes());
                    hasher.update(bytes);
                }
                for number in [kv.create_revision, kv.revision, kv.version, kv.lease] {
                    hasher.update(&number.to_le_bytes());
                }
            }
        }
        Ok((hasher.finalize(), hashed_at))
    }

    fn alarm(&self) -> Option<AlarmMember> {
        let member_id = self.node.identity.member_id;
        let up = self.node.alarms.no_space();
        up.then_some(AlarmMember { member_id, alarm: AlarmType::Nospace as i32 })
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let Node { store, identity, options, .. } = &*self.node;
        let size = store.size().await.map_err(status)?;
        let revision = store.revision().await.map_err(status)?;
        let index = revision.unsigned_abs();
        let minor = options.version.rsplit_once('.').map_or(&*options.version, |(minor, _)| minor);
        Ok(Response::new(StatusResponse {
            header: identity.header(revision),
            version: options.version.clone(),
            db_size: size.total as i64,
            db_size_in_use: size.used as i64,
            db_size_quota: options.quota_bytes as i64,
            leader: identity.member_id,
            raft_index: index,
            raft_applied_index: index,
            raft_term: TERM,
            errors: self
                .alarm()
                .map(|alarm| format!("memberID:{} alarm:NOSPACE ", alarm.member_id))
                .into_iter()
                .collect(),
            is_learner: false,
            storage_version: format!("{minor}.0"),
            downgrade_info: Some(DowngradeInfo::default()),
        }))
    }

    async fn hash(&self, _: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let (hash, revision) = self.hash(None).await?;
        Ok(Response::new(HashResponse { header: self.node.header(revision), hash }))
    }

    async fn hash_kv(&self, request: Request<HashKvRequest>) -> Result<Response<HashKvResponse>, Status> {
        let revision = request.into_inner().revision;
        let compact_revision = self.node.store.compacted().await.map_err(status)?;
        if revision > 0 && revision < compact_revision {
            return Err(COMPACTED.into());
        }
        let (hash, hash_revision) = self.hash((revision > 0).then_some(revision)).await?;
        let header = self.node.header_now().await?;
        // etcd says -1 while nothing has been compacted.
        let compact_revision = if compact_revision == 0 { -1 } else { compact_revision };
        Ok(Response::new(HashKvResponse { header, hash, compact_revision, hash_revision }))
    }

    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<SnapshotResponse, Status>> + Send>>;

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        let stream = snapshot::stream(&self.node).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn defragment(
        &self,
        _: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        self.node.store.wait_for_compaction().await.map_err(status)?;
        Ok(Response::new(DefragmentResponse { header: self.node.header_now().await? }))
    }

    async fn alarm(&self, request: Request<AlarmRequest>) -> Result<Response<AlarmResponse>, Status> {
        let request = request.into_inner();
        let header = self.node.header_now().await?;
        let ours = request.member_id == 0 || request.member_id == self.node.identity.member_id;
        let no_space = ours && matches!(request.alarm(), AlarmType::Nospace | AlarmType::None);
        let before = self.alarm();
        let alarms = match request.action() {
            AlarmAction::Get => before.into_iter().collect(),
            AlarmAction::Activate if no_space => {
                self.node.alarms.set(&self.node.store, true).await.map_err(status)?;
                self.alarm().into_iter().collect()
            }
            AlarmAction::Deactivate if no_space => {
                self.node.alarms.set(&self.node.store, false).await.map_err(status)?;
                before.into_iter().collect()
            }
            AlarmAction::Activate | AlarmAction::Deactivate => Vec::new(),
        };
        Ok(Response::new(AlarmResponse { header, alarms }))
    }

    async fn move_leader(
        &self,
        _: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        Err(BAD_LEADER_TRANSFEREE.into())
    }

    async fn downgrade(&self, _: Request<DowngradeRequest>) -> Result<Response<DowngradeResponse>, Status> {
        Err(Status::unimplemented("orlop: downgrade is not supported"))
    }
}
