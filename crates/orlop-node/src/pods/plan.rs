//! The next steps of a pod: which containers to start, and when the next sync is due.

use k8s_openapi::jiff::Timestamp;

use super::{
    containers::{Class, Ended, Member, Run},
    restart::{self, Restart},
};

/// Steps that bring a pod nearer to what it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Indices of containers to start, in order.
    pub(crate) start: Vec<usize>,
    /// Indices of containers that wait for their back-off, each with its delay in seconds.
    pub(crate) back_off: Vec<(usize, u64)>,
    /// Indices of containers to stop, at once together.
    pub(crate) stop: Vec<usize>,
    /// The pod has run to its end: nothing will start any more.
    pub(crate) is_finished: bool,
    /// All containers run again, init containers first.
    pub(crate) restart_all: bool,
    /// Time at which a container may be started.
    pub(crate) wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// Plans the next steps of a pod that is to run.
pub(crate) fn next(members: &[Member], pod_policy: &str, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if members.iter().any(|member| {
        member.state.ended().is_some_and(|ended| restart::after(member, ended, pod_policy) == Restart::Pod)
    }) {
        plan.restart_all = true;
        plan.stop = running(members, |_| true);
        return plan;
    }
    let is_main = |member: &Member| member.class == Class::Main;
    let mains_began = members.iter().any(|member| is_main(member) && member.state.has_run());
    let mut planner = Planner { members, pod_policy, now, plan };
    // Init containers that failed for good end the pod.
    let Some(initialized) = planner.initialize(mains_began) else {
        return planner.finish();
    };
    if initialized || mains_began {
        for (index, member) in members.iter().enumerate() {
            if is_main(member) {
                planner.consider(index);
            }
        }
        let done = members.iter().filter(|member| is_main(member)).all(|member| {
            member.state.ended().is_some_and(|ended| restart::after(member, ended, pod_policy) == Restart::No)
        });
        if done {
            return planner.finish();
        }
    }
    for (index, member) in members.iter().enumerate() {
        if member.class == Class::Ephemeral && !member.state.has_run() {
            planner.consider(index);
        }
    }
    planner.plan
}

/// Returns the indices of running containers to stop now for a pod that ends: main and ephemeral ones first, then
/// sidecars, the last first.
pub(crate) fn stop(members: &[Member]) -> Vec<usize> {
    let first = running(members, |class| class != Class::Sidecar);
    if !first.is_empty() {
        return first;
    }
    running(members, |class| class == Class::Sidecar).into_iter().next_back().into_iter().collect()
}

fn running(members: &[Member], wanted: impl Fn(Class) -> bool) -> Vec<usize> {
    let all = members.iter().enumerate();
    all.filter(|(_, member)| wanted(member.class) && member.state.is_running())
        .map(|(index, _)| index)
        .collect()
}

struct Planner<'a> {
    members: &'a [Member],
    pod_policy: &'a str,
    now: Timestamp,
    plan: Plan,
}

impl Planner<'_> {
    /// Considers init containers in order. Returns true once main containers may start, `None` if they never will.
    fn initialize(&mut self, mains_began: bool) -> Option<bool> {
        for (index, member) in self.members.iter().enumerate() {
            match member.class {
                // Once main containers have begun, init containers are history.
                Class::Init if mains_began => {}
                Class::Init => match &member.state.run {
                    Run::Ended(ended) if ended.exit_code == 0 => {}
                    Run::Ended(ended) => {
                        if restart::after(member, ended, self.pod_policy) == Restart::No {
                            return None;
                        }
                        self.consider(index);
                        return Some(false);
                    }
                    Run::None => {
                        self.consider(index);
                        return Some(false);
                    }
                    Run::Running { .. } => return Some(false),
                },
                Class::Sidecar => {
                    self.consider(index);
                    let has_started = member.state.is_running() && member.state.started;
                    if !has_started && !mains_began {
                        return Some(false);
                    }
                }
                Class::Main | Class::Ephemeral => {}
            }
        }
        Some(true)
    }

    /// Starts a container that should run and does not, unless it has to wait.
    fn consider(&mut self, index: usize) {
        let member = &self.members[index];
        let state = &member.state;
        if let Some(at) = state.retry_at.filter(|at| *at > self.now) {
            self.plan.wake(at);
            return;
        }
        let restarts = |ended: &Ended| restart::after(member, ended, self.pod_policy) != Restart::No;
        match &state.run {
            Run::Running { .. } => {}
            Run::None => self.plan.start.push(index),
            Run::Ended(ended) if restarts(ended) => match state.back_off.until(ended.finished_at) {
                Some((at, delay)) if at > self.now => {
                    self.plan.back_off.push((index, delay.as_secs()));
                    self.plan.wake(at);
                }
                _ => self.plan.start.push(index),
            },
            Run::Ended(_) => {}
        }
    }

    /// Ends the pod: sidecars stop, nothing starts.
    fn finish(self) -> Plan {
        let stop = stop(self.members);
        Plan { is_finished: true, stop, ..Plan::default() }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;

    use super::*;
    use crate::pods::containers::State;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn member(class: Class, run: Run) -> Member {
        let state = State { run, started: true, ..State::default() };
        Member { spec: Container::default(), class, state }
    }

    fn ran(code: i32) -> Run {
        Run::Ended(Ended {
            id: String::new(),
            exit_code: code,
            signal: 0,
            reason: String::new(),
            message: String::new(),
            started_at: None,
            finished_at: at(0),
        })
    }

    fn runs() -> Run {
        Run::Running { id: String::new(), since: at(0) }
    }

    fn plan(members: &[Member], policy: &str) -> Plan {
        next(members, policy, at(1))
    }

    #[test]
    fn init_containers_run_one_by_one_before_main_ones() {
        let pod = |first: Run, second: Run| {
            [member(Class::Init, first), member(Class::Init, second), member(Class::Main, Run::None)]
        };
        assert_eq!(plan(&pod(Run::None, Run::None), "Always").start, [0]);
        assert!(plan(&pod(runs(), Run::None), "Always").start.is_empty());
        assert_eq!(plan(&pod(ran(0), Run::None), "Always").start, [1]);
        assert_eq!(plan(&pod(ran(0), ran(0)), "Always").start, [2]);
    }

    #[test]
    fn failed_init_container_ends_a_pod_that_never_restarts() {
        let pod = [member(Class::Init, ran(1)), member(Class::Main, Run::None)];
        assert!(plan(&pod, "Never").is_finished);
        assert_eq!(plan(&pod, "Always").start, [0]);
        assert_eq!(plan(&pod, "OnFailure").start, [0]);
    }

    #[test]
    fn sidecar_must_have_started_before_the_next_begins() {
        let mut pod = [member(Class::Sidecar, runs()), member(Class::Main, Run::None)];
        pod[0].state.started = false;
        assert!(plan(&pod, "Always").start.is_empty());
        pod[0].state.started = true;
        assert_eq!(plan(&pod, "Always").start, [1]);
        // Once main containers run, it is restarted beside them.
        let pod = [member(Class::Sidecar, ran(0)), member(Class::Main, runs())];
        assert_eq!(plan(&pod, "Never").start, [0]);
    }

    #[test]
    fn sidecars_stop_in_reverse_order_when_main_containers_are_done() {
        let pod =
            [member(Class::Sidecar, runs()), member(Class::Sidecar, runs()), member(Class::Main, ran(0))];
        let steps = plan(&pod, "Never");
        assert_eq!((steps.is_finished, steps.stop), (true, vec![1]));
    }

    #[test]
    fn restart_waits_for_its_back_off() {
        let mut pod = [member(Class::Main, ran(1))];
        assert_eq!(plan(&pod, "Always").start, [0]);
        pod[0].state.back_off.attempted(at(0));
        let steps = plan(&pod, "Always");
        assert_eq!((steps.start, steps.back_off, steps.wake_at), (vec![], vec![(0, 10)], Some(at(10))));
        assert!(plan(&pod, "Never").is_finished);
        assert_eq!(
            plan(&[member(Class::Main, ran(0))], "OnFailure"),
            Plan { is_finished: true, ..Plan::default() }
        );
    }

    #[test]
    fn exit_code_rule_comes_before_the_policy_of_the_pod() {
        let mut pod = [member(Class::Main, ran(42))];
        pod[0].spec = serde_json::from_value(serde_json::json!({"name": "a", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}))
        .unwrap();
        assert_eq!(plan(&pod, "Never").start, [0]);
    }
}
