//! Takes up the containers that an earlier process of this node left running.

use super::{Live, Worker};
use crate::{
    pods::containers::Run,
    runtime::{Found, Record},
};

impl Worker {
    /// Finds the runs of every container on disk: adopts those that live, records the ends of others.
    pub(super) fn restore(&mut self) {
        let status = self.pod.status.clone().unwrap_or_default();
        if let Some(address) = status.pod_ip.and_then(|ip| ip.parse().ok()) {
            self.address = self.node.addresses.allocate(&self.uid, Some(address));
        }
        let known: Vec<_> = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ]
        .into_iter()
        .flatten()
        .flatten()
        .cloned()
        .collect();
        for index in 0..self.members.len() {
            let name = self.members[index].spec.name.clone();
            let runs = self.node.runtime.runs(&self.uid, &name);
            if let Some(known) = known.iter().find(|known| known.name == name) {
                self.members[index].state.restart_count =
                    u32::try_from(known.restart_count).unwrap_or_default();
                self.members[index].state.image_id.clone_from(&known.image_id);
                self.members[index].state.resources.clone_from(&known.resources);
            }
            let Some(run) = runs.last().copied() else { continue };
            let folder = self.node.runtime.run_folder(&self.uid, &name, run);
            self.members[index].state.restart_count = run;
            let record = Record::read(&folder);
            if let Some(record) = &record {
                self.members[index].state.image_id.clone_from(&record.image_id);
            }
            let since = record.as_ref().map(|record| record.started_at);
            let id = record.map(|record| record.id).unwrap_or_default();
            self.restore_last(index, &runs);
            match self.node.runtime.find(&self.uid, &name, run) {
                Found::Alive(container) => {
                    tracing::info!(pod = self.name, container = name, "took up a running container");
                    let since = since.unwrap_or_else(k8s_openapi::jiff::Timestamp::now);
                    self.members[index].state.run = Run::Running { id: container.id().to_owned(), since };
                    self.live[index] = Some(Live { container, tasks: Vec::new(), stop: None });
                    self.follow(index);
                }
                Found::Ended(exit) => {
                    let ended = self.ended_run(index, &id, since, Some(exit));
                    self.members[index].state.run = Run::Ended(ended);
                }
                Found::Lost => {
                    let ended = self.ended_run(index, &id, since, None);
                    self.members[index].state.run = Run::Ended(ended);
                }
            }
        }
    }

    /// Restores the end of the run before the last.
    fn restore_last(&mut self, index: usize, runs: &[u32]) {
        let name = self.members[index].spec.name.clone();
        let [.., previous, current] = *runs else { return };
        if let Found::Ended(exit) = self.node.runtime.find(&self.uid, &name, previous) {
            let record = Record::read(&self.node.runtime.run_folder(&self.uid, &name, previous));
            let since = record.as_ref().map(|record| record.started_at);
            let id = record.map(|record| record.id).unwrap_or_default();
            self.members[index].state.restart_count = previous;
            let ended = self.ended_run(index, &id, since, Some(exit));
            self.members[index].state.restart_count = current;
            self.members[index].state.last = Some(ended);
        }
    }
}
