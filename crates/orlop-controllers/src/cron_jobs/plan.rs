//! Decisions on a CronJob. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        batch::v1::{CronJob, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp, tz::TimeZone},
};
use orlop_client::{ResourceExt, api::ObjectMeta};

use super::schedule::Schedule;
use crate::{
    jobs::finished,
    workload::{ownership::controller_reference, time::plus_seconds},
};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Missed times that are worth a warning.
const MISSED_MAX: usize = 100;

/// An event: a warning or not, its reason and text.
type EventText = (bool, &'static str, String);

/// Brings the list of active jobs up to date. Returns events about it.
pub(super) fn update_active(cron_job: &mut CronJob, jobs: &[Arc<Job>]) -> Vec<EventText> {
    let mut events = Vec::new();
    let status = cron_job.status.get_or_insert_default();
    let mut active = status.active.take().unwrap_or_default();
    for job in jobs {
        let is_listed = active.iter().any(|known| known.uid == job.metadata.uid);
        match finished(job) {
            None if !is_listed => {
                let name = job.name_any();
                let text = format!("Saw a job that the controller did not create or forgot: {name}");
                events.push((true, "UnexpectedJob", text));
            }
            None => {}
            Some(condition) => {
                if is_listed {
                    active.retain(|known| known.uid != job.metadata.uid);
                    let text =
                        format!("Saw completed job: {}, condition: {}", job.name_any(), condition.type_);
                    events.push((false, "SawCompletedJob", text));
                }
                let completed = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
                if condition.type_ == "Complete"
                    && let Some(completed) = completed
                    && status.last_successful_time.as_ref().is_none_or(|last| last.0 < completed.0)
                {
                    status.last_successful_time = Some(completed.clone());
                }
            }
        }
    }
    active.retain(|known| {
        let exists = jobs.iter().any(|job| job.metadata.uid == known.uid);
        if !exists {
            let name = known.name.clone().unwrap_or_default();
            events.push((false, "MissingJob", format!("Active job went missing: {name}")));
        }
        exists
    });
    status.active = (!active.is_empty()).then_some(active);
    events
}

/// A job that is due, or not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    At(Timestamp),
    /// Its starting deadline has passed.
    TooLate(Timestamp),
    /// The one before still runs.
    Forbidden,
}

/// Returns the job that is due now, and whether very many times were missed.
pub(super) fn due(cron_job: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> (Due, bool) {
    let status = cron_job.status.clone().unwrap_or_default();
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    let last = status.last_schedule_time.as_ref().map(|time| time.0);
    let mut earliest = last.unwrap_or(created);
    let deadline = cron_job.spec.starting_deadline_seconds;
    if let Some(deadline) = deadline {
        earliest = earliest.max(plus_seconds(now, -deadline));
    }
    let (missed, latest) = missed(schedule, zone, earliest, now);
    let too_many = missed > MISSED_MAX;
    let Some(time) = latest else { return (Due::Nothing, false) };
    if deadline.is_some_and(|deadline| plus_seconds(time, deadline) < now) {
        return (Due::TooLate(time), too_many);
    }
    let is_listed = status.active.iter().flatten().any(|known| known.name == Some(job_name(cron_job, time)));
    if is_listed || last == Some(time) {
        return (Due::Nothing, too_many);
    }
    let is_busy = status.active.as_ref().is_some_and(|active| !active.is_empty());
    if is_busy && cron_job.spec.concurrency_policy.as_deref() == Some("Forbid") {
        return (Due::Forbidden, too_many);
    }
    (Due::At(time), too_many)
}

/// Returns the number of times since `earliest`, counted up to one too many, and the latest of them.
fn missed(
    schedule: &Schedule,
    zone: &TimeZone,
    earliest: Timestamp,
    now: Timestamp,
) -> (usize, Option<Timestamp>) {
    let times = |from: Timestamp| {
        let first = schedule.next(from, zone);
        std::iter::successors(first, |time| schedule.next(*time, zone)).take_while(|time| *time <= now)
    };
    let count = times(earliest).take(MISSED_MAX + 1).count();
    if count <= MISSED_MAX {
        return (count, times(earliest).last());
    }
    // Far behind: the latest is searched for from the end, in windows that grow.
    let windows = [1, 24, 24 * 32, 24 * 366].map(SignedDuration::from_hours);
    let latest = windows.into_iter().find_map(|window| {
        let start = now.checked_sub(window).unwrap_or(Timestamp::MIN).max(earliest);
        times(start).last()
    });
    (count, latest)
}

/// Returns the name of the job of a time: it starts once.
fn job_name(cron_job: &CronJob, time: Timestamp) -> String {
    format!("{}-{}", cron_job.name_any(), time.as_second() / 60)
}

/// Returns the job of a time.
pub(super) fn new_job(cron_job: &CronJob, time: Timestamp, zone: &TimeZone) -> Job {
    let template = cron_job.spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let local = time.to_zoned(zone.clone());
    annotations.insert(
        SCHEDULED.to_owned(),
        local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().replace("+00:00", "Z"),
    );
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron_job, time)),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// A job that was started, now or before.
#[derive(Debug)]
pub(super) enum Started {
    New(ObjectReference),
    Before(ObjectReference),
}

/// Notes a job that was started.
pub(super) fn note_start(cron_job: &mut CronJob, started: Started, time: Timestamp) {
    let (Started::New(reference) | Started::Before(reference)) = started;
    let status = cron_job.status.get_or_insert_default();
    let active = status.active.get_or_insert_default();
    if !active.iter().any(|known| known.uid == reference.uid) {
        active.push(reference);
    }
    status.last_schedule_time = Some(Time(time));
}

/// Returns the finished jobs that the history has no place for, the oldest.
pub(super) fn surplus(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let spec = &cron_job.spec;
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut surplus = Vec::new();
    for (type_, limit) in limits {
        let Some(limit) = limit else { continue };
        let mut of_type: Vec<&Arc<Job>> = jobs
            .iter()
            .filter(|job| finished(job).is_some_and(|condition| condition.type_ == type_))
            .collect();
        of_type.sort_by_key(|job| {
            let started =
                job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (started, job.name_any())
        });
        let count = of_type.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        surplus.extend(of_type.into_iter().take(count).cloned());
    }
    surplus
}

/// Returns a time in the form of RFC 1123 with a numeric zone.
pub(super) fn rfc1123(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron_job(spec: Value, status: Value) -> CronJob {
        let mut whole = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": {}}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let metadata = json!({"name": "c", "uid": "c", "creationTimestamp": "2026-01-01T00:30:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
    }

    fn due_at(cron_job: &CronJob, now: &str) -> (Due, bool) {
        let schedule = Schedule::parse(&cron_job.spec.schedule).unwrap();
        due(cron_job, &schedule, &TimeZone::UTC, now.parse().unwrap())
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_latest_missed_time_starts() {
        let plain = cron_job(json!({}), json!({}));
        assert_eq!(due_at(&plain, "2026-01-01T00:59:00Z").0, Due::Nothing);
        assert_eq!(due_at(&plain, "2026-01-01T01:00:00Z").0, Due::At(at("2026-01-01T01:00:00Z")));
        assert_eq!(due_at(&plain, "2026-01-01T05:10:00Z").0, Due::At(at("2026-01-01T05:00:00Z")));
        let done = cron_job(json!({}), json!({"lastScheduleTime": "2026-01-01T05:00:00Z"}));
        assert_eq!(due_at(&done, "2026-01-01T05:10:00Z").0, Due::Nothing);
        let (far, too_many) = due_at(&plain, "2026-02-01T05:10:00Z");
        assert_eq!((far, too_many), (Due::At(at("2026-02-01T05:00:00Z")), true));
    }

    #[test]
    fn deadline_and_concurrency_are_honoured() {
        let late = cron_job(json!({"startingDeadlineSeconds": 60}), json!({}));
        assert_eq!(due_at(&late, "2026-01-01T01:00:30Z").0, Due::At(at("2026-01-01T01:00:00Z")));
        assert_eq!(due_at(&late, "2026-01-01T01:10:00Z").0, Due::Nothing);
        let active = json!({"active": [{"name": "c-1", "uid": "1"}]});
        let forbid = cron_job(json!({"concurrencyPolicy": "Forbid"}), active.clone());
        assert_eq!(due_at(&forbid, "2026-01-01T01:00:00Z").0, Due::Forbidden);
        let allow = cron_job(json!({}), active);
        assert_eq!(due_at(&allow, "2026-01-01T01:00:00Z").0, Due::At(at("2026-01-01T01:00:00Z")));
    }

    #[test]
    fn job_is_named_and_annotated_by_its_time() {
        let job = new_job(&cron_job(json!({}), json!({})), at("2026-01-01T01:00:00Z"), &TimeZone::UTC);
        assert_eq!(job.name_any(), format!("c-{}", at("2026-01-01T01:00:00Z").as_second() / 60));
        assert_eq!(job.annotations()[SCHEDULED], "2026-01-01T01:00:00Z");
        assert_eq!(rfc1123(at("2026-01-01T01:00:00Z")), "Thu, 01 Jan 2026 01:00:00 +0000");
    }

    #[test]
    fn history_is_cut_and_active_jobs_followed() {
        let job = |name: &str, type_: Option<&str>, hour: u8| {
            let conditions: Vec<Value> =
                type_.iter().map(|type_| json!({"type": type_, "status": "True"})).collect();
            let job = json!({"metadata": {"name": name, "uid": name}, "status": {"conditions": conditions,
                "startTime": format!("2026-01-01T0{hour}:00:00Z"), "completionTime": "2026-01-01T09:00:00Z"}});
            Arc::new(serde_json::from_value::<Job>(job).unwrap())
        };
        let jobs = [
            job("a", Some("Complete"), 1),
            job("b", Some("Complete"), 2),
            job("d", Some("Failed"), 3),
            job("e", None, 4),
        ];
        let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1});
        let active = json!({"active": [{"name": "b", "uid": "b"}, {"name": "gone", "uid": "gone"}]});
        let mut cron_job = cron_job(limits, active);
        let surplus: Vec<String> = surplus(&cron_job, &jobs).iter().map(|job| job.name_any()).collect();
        assert_eq!(surplus, ["a"]);
        let events = update_active(&mut cron_job, &jobs);
        let reasons: Vec<&str> = events.iter().map(|(_, reason, _)| *reason).collect();
        assert_eq!(reasons, ["SawCompletedJob", "UnexpectedJob", "MissingJob"]);
        assert_eq!(events[0].2, "Saw completed job: b, condition: Complete");
        let status = cron_job.status.unwrap();
        assert!(status.active.is_none() && status.last_successful_time.is_some());
    }
}
