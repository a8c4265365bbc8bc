//! The Election service.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use orlop_store::{Watch, Watcher};
use tonic::{Request, Response, Status};

use crate::{
    candidates::{Candidates, deletion, unknown},
    convert::key_value,
    errors::status,
    kv::KvService,
    node::Node,
    pb::{
        etcdserverpb::{PutRequest, ResponseHeader, request_op::Request as Op},
        v3electionpb::{
            CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
            ProclaimResponse, ResignRequest, ResignResponse, election_server::Election,
        },
    },
};

/// Implements `v3electionpb.Election`.
#[derive(Clone, Debug)]
pub(crate) struct ElectionService {
    pub(crate) node: Arc<Node>,
}

impl ElectionService {
    /// Sets the value of a leader's key. Fails if it leads no more.
    async fn proclaim(&self, leader: &LeaderKey, value: Bytes) -> Result<Option<ResponseHeader>, Status> {
        let kv = KvService { node: self.node.clone() };
        let LeaderKey { key, rev, lease, .. } = leader;
        let put = PutRequest { key: key.clone(), value, lease: *lease, ..PutRequest::default() };
        match Candidates::while_owned(&kv, key, *rev, Op::RequestPut(put)).await? {
            (header, true) => Ok(header),
            _ => Err(unknown("election: not leader")),
        }
    }
}

fn required(leader: Option<LeaderKey>) -> Result<LeaderKey, Status> {
    leader.ok_or_else(|| unknown("\"leader\" field must be provided"))
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(
        &self,
        request: Request<CampaignRequest>,
    ) -> Result<Response<CampaignResponse>, Status> {
        let CampaignRequest { name, lease, value } = request.into_inner();
        let candidates = Candidates::of(&self.node, &name);
        let lease = candidates.lease(lease).await?;
        let candidate = candidates.enter(lease, value.clone()).await?;
        let leader = LeaderKey { name, key: candidate.key.clone(), rev: candidate.revision, lease };
        let mut header = candidate.header;
        if candidate.existing.as_ref().is_some_and(|existing| *existing != value) {
            header = self.proclaim(&leader, value).await?;
        }
        candidates.wait_for_turn(&candidate).await?;
        Ok(Response::new(CampaignResponse { header, leader: Some(leader) }))
    }

    async fn proclaim(
        &self,
        request: Request<ProclaimRequest>,
    ) -> Result<Response<ProclaimResponse>, Status> {
        let ProclaimRequest { leader, value } = request.into_inner();
        let header = self.proclaim(&required(leader)?, value).await?;
        Ok(Response::new(ProclaimResponse { header }))
    }

    async fn leader(&self, request: Request<LeaderRequest>) -> Result<Response<LeaderResponse>, Status> {
        match Candidates::of(&self.node, &request.into_inner().name).first().await? {
            (None, _) => Err(unknown("election: no leader")),
            (kv, header) => Ok(Response::new(LeaderResponse { header, kv })),
        }
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<LeaderResponse, Status>> + Send>>;

    async fn observe(
        &self,
        request: Request<LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let candidates = Candidates::of(&self.node, &request.into_inner().name);
        let observer =
            Observer { node: self.node.clone(), candidates, state: Observing::Unknown, pending: Vec::new() };
        let proclamations =
            stream::try_unfold(observer, async |mut observer| Ok(Some((observer.next().await?, observer))));
        Ok(Response::new(Box::pin(proclamations.take_until(self.node.clone().stopped()))))
    }

    async fn resign(&self, request: Request<ResignRequest>) -> Result<Response<ResignResponse>, Status> {
        let leader = required(request.into_inner().leader)?;
        let kv = KvService { node: self.node.clone() };
        let (header, _) =
            Candidates::while_owned(&kv, &leader.key, leader.rev, deletion(leader.key.clone())).await?;
        Ok(Response::new(ResignResponse { header }))
    }
}

/// State of an observation.
enum Observing {
    /// The leader has to be looked up.
    Unknown,
    /// Nobody leads; the watch is of all candidates.
    Vacant(Watcher),
    /// The watch is of the leader's key.
    Led(Watcher),
}

/// Observation of an election: what its leaders proclaim.
struct Observer {
    node: Arc<Node>,
    candidates: Candidates,
    state: Observing,
    /// Proclamations that have not been sent, newest first.
    pending: Vec<LeaderResponse>,
}

impl Observer {
    /// Returns the next proclamation.
    async fn next(&mut self) -> Result<LeaderResponse, Status> {
        loop {
            if let Some(response) = self.pending.pop() {
                return Ok(response);
            }
            match &mut self.state {
                Observing::Unknown => {
                    let (leader, header) = self.candidates.first().await?;
                    let after = header.as_ref().map_or(0, |header| header.revision);
                    let Some(kv) = leader else {
                        let watch = Watch::new(self.candidates.keys()).after(after);
                        self.state = Observing::Vacant(self.node.store.watch(watch).await.map_err(status)?);
                        continue;
                    };
                    let watch = Watch::new(orlop_store::KeyRange::key(kv.key.clone())).after(after);
                    self.state = Observing::Led(self.node.store.watch(watch).await.map_err(status)?);
                    return Ok(LeaderResponse { header, kv: Some(kv) });
                }
                Observing::Vacant(watcher) => {
                    let batch = watcher.next().await.map_err(status)?;
                    // The first of several candidates leads, so it is looked up.
                    if batch.events().any(|event| !event.event.deleted) {
                        self.state = Observing::Unknown;
                    }
                }
                Observing::Led(watcher) => {
                    let batch = watcher.next().await.map_err(status)?;
                    for event in batch.events() {
                        if event.event.deleted {
                            self.state = Observing::Unknown;
                            break;
                        }
                        let kv = key_value(event.event.kv.clone());
                        let header = self.node.header(kv.mod_revision);
                        self.pending.insert(0, LeaderResponse { header, kv: Some(kv) });
                    }
                }
            }
        }
    }
}
