//! Checks of watches: ordered, unique, reliable, atomic, resumable; progress consistent; previous versions, creations and
//! filters correct; compacted starts refused, future starts waiting.

use orlop_store::{Error, Filter, Revision, Terms};

use crate::{
    Batch, Change, Entry, Failure, History, Model, Observed, WatchRecord, WatchSpec,
    linearizability::{compactions, observed_revisions},
    timeline::{Compactions, Timeline},
};

/// Checks every watch of a history against the commits that explain it.
pub(crate) fn check(history: &History, model: &Model) -> Result<(), String> {
    let asked = history.operations.iter().filter_map(|operation| match &operation.outcome {
        crate::Outcome::Txn(result) => Some((operation.invoked, result.revision)),
        // It may have created any revision.
        crate::Outcome::Unknown => Some((operation.invoked, model.revision())),
        _ => None,
    });
    let timeline = Timeline::new(observed_revisions(history), asked.collect());
    let compactions = compactions(history);
    for watch in &history.watches {
        Checker { watch, model, timeline: &timeline, compactions: &compactions, last: history.last }
            .check()
            .map_err(|problem| format!("{problem}, in {watch:#?}"))?;
    }
    Ok(())
}

struct Checker<'a> {
    watch: &'a WatchRecord,
    model: &'a Model,
    timeline: &'a Timeline,
    compactions: &'a Compactions,
    last: Revision,
}

impl Checker<'_> {
    fn check(&self) -> Result<(), String> {
        let spec = &self.watch.spec;
        // The watch starts after a revision between these two.
        let (lowest, highest) = match spec.after {
            Some(after) => (after, after),
            None => (self.timeline.at_least(self.watch.invoked), self.timeline.at_most(self.watch.opened)),
        };
        let opened =
            !matches!(self.watch.entries.first(), Some((at, Entry::Ended(_))) if *at == self.watch.opened);
        if opened && highest < self.compactions.at_least(self.watch.invoked) - 1 {
            return Err("opened, although its start was compacted".into());
        }
        // Selected events up to `delivered` have been delivered; those up to `optional` may be skipped.
        let (mut delivered, mut optional, mut reported) = (lowest, highest, 0);
        for (time, entry) in &self.watch.entries {
            match entry {
                Entry::Batch(batch) => {
                    self.delivered(batch, *time, delivered, optional)?;
                    if batch.revision <= reported {
                        return Err(format!("revision {} came after progress {reported}", batch.revision));
                    }
                    (delivered, optional) = (batch.revision, 0);
                }
                Entry::Progress(revision) => {
                    if *revision > self.timeline.at_most(*time) {
                        return Err(format!("progress {revision} was reported before it can have happened"));
                    }
                    let missing =
                        (delivered.max(optional) + 1..=*revision).find(|r| self.expected(*r).is_some());
                    if let Some(missing) = missing {
                        return Err(format!(
                            "progress {revision} was reported before the events of {missing}"
                        ));
                    }
                    if *revision < reported || (optional == 0 && *revision < delivered) {
                        return Err(format!("progress went back to {revision}"));
                    }
                    reported = *revision;
                }
                Entry::Ended(failure) => self.ended(failure, *time, delivered.max(reported))?,
            }
        }
        let over = matches!(self.watch.entries.last(), Some((_, Entry::Ended(_))));
        if self.watch.drained && !over {
            let missing =
                (delivered.max(optional) + 1..=self.last).find(|revision| self.expected(*revision).is_some());
            if let Some(missing) = missing {
                return Err(format!("the events of {missing} never came"));
            }
        }
        Ok(())
    }

    /// Checks that a batch is the next one that the watch selects, whole and correct.
    fn delivered(
        &self,
        batch: &Batch,
        time: u64,
        delivered: Revision,
        optional: Revision,
    ) -> Result<(), String> {
        if batch.revision <= delivered {
            return Err(format!("revision {} came after {delivered}", batch.revision));
        }
        let skipped =
            (delivered.max(optional) + 1..batch.revision).find(|revision| self.expected(*revision).is_some());
        if let Some(skipped) = skipped {
            return Err(format!("the events of {skipped} were skipped"));
        }
        let mut expected = self.expected(batch.revision).unwrap_or_default();
        // etcd omits the previous value of a version that was superseded at or before the compacted revision. Only the
        // store itself reports matches of filters, and it never omits one.
        let previous_compacted = batch.revision <= self.compactions.at_most(time);
        for (expected, event) in expected.iter_mut().zip(&batch.events) {
            let is_etcd = event.passes.is_none();
            if is_etcd {
                expected.passes = None;
            }
            let is_omitted = is_etcd && previous_compacted && event.previous.is_none();
            if !self.watch.spec.previous || is_omitted {
                // Events are shared, so one that another watch has loaded may have it.
                expected.previous.clone_from(&event.previous);
            }
        }
        if batch.events != expected {
            return Err(format!("revision {} was {expected:#?}, but came as {batch:#?}", batch.revision));
        }
        Ok(())
    }

    /// Returns the events of a revision that the watch selects; `None` if there are none.
    fn expected(&self, revision: Revision) -> Option<Vec<Observed>> {
        let spec = &self.watch.spec;
        let changes = self.model.commit(revision).iter().filter(|change| selects(spec, change));
        let events: Vec<Observed> = changes.map(|change| observed(spec, change, revision)).collect();
        (!events.is_empty()).then_some(events)
    }

    fn ended(&self, failure: &Failure, time: u64, delivered: Revision) -> Result<(), String> {
        match failure {
            Failure::Unknown(_) => Ok(()),
            Failure::Refused(Error::Expired { compacted }) => {
                if *compacted > self.compactions.at_most(time) {
                    return Err(format!("compaction at {compacted} was never asked for"));
                }
                if delivered + 1 >= *compacted {
                    return Err(format!("ended at {delivered}, although only {compacted} is compacted"));
                }
                Ok(())
            }
            Failure::Refused(error) => Err(format!("ended by {error}")),
        }
    }
}

fn passes(filter: &Filter, terms: Option<&Terms>) -> bool {
    terms.is_some_and(|terms| filter.matches(terms))
}

fn sides(spec: &WatchSpec, change: &Change) -> (bool, bool) {
    let passes = |version: &Option<crate::Version>| passes(&spec.filter, version.as_ref().map(|v| &v.terms));
    (passes(&change.after), passes(&change.before))
}

fn selects(spec: &WatchSpec, change: &Change) -> bool {
    let (now, before) = sides(spec, change);
    spec.range.contains(&change.key) && (now || before)
}

fn observed(spec: &WatchSpec, change: &Change, revision: Revision) -> Observed {
    let gone = orlop_store::KeyValue { key: change.key.clone(), revision, ..Default::default() };
    Observed {
        kv: change.after.as_ref().map_or(gone, |version| version.kv.clone()),
        deleted: change.after.is_none(),
        created: change.before.is_none(),
        passes: Some(sides(spec, change)),
        previous: change.before.as_ref().filter(|_| spec.previous).map(|version| version.kv.clone()),
    }
}
