//! etcdctl, unmodified, against `orlop etcd`.

use crate::process::{Background, Orlop};

fn memory() -> Orlop {
    Orlop::start(&["--endpoint", "memory"])
}

#[test]
fn keys_are_put_read_sorted_counted_and_deleted() {
    let orlop = memory();
    let ctl = orlop.ctl();
    for (key, value) in [("a", "3"), ("b", "2"), ("c", "1"), ("other", "0")] {
        assert_eq!(ctl.ok(&["put", key, value]), "OK\n");
    }
    assert_eq!(ctl.ok(&["put", "a", "4", "--prev-kv"]), "OK\na\n3\n");
    assert_eq!(ctl.ok(&["get", "a"]), "a\n4\n");
    assert_eq!(ctl.ok(&["get", "a", "--rev", "2"]), "a\n3\n");
    assert_eq!(ctl.ok(&["get", "a", "d", "--limit", "2", "--keys-only"]), "a\n\nb\n\n");
    assert_eq!(ctl.ok(&["get", "a", "d", "--sort-by", "VALUE", "--order", "ASCEND"]), "c\n1\nb\n2\na\n4\n");
    assert_eq!(ctl.ok(&["get", "a", "d", "--sort-by", "MODIFY", "--order", "DESCEND"]), "a\n4\nc\n1\nb\n2\n");
    assert_eq!(ctl.ok(&["get", "", "--prefix", "--print-value-only", "--from-key=false"]), "4\n2\n1\n0\n");
    assert!(ctl.ok(&["get", "", "--prefix", "--count-only", "-w", "fields"]).contains("\"Count\" : 4"));
    assert_eq!(ctl.json(&["get", "a"])["kvs"][0]["version"], 2);
    assert_eq!(ctl.ok(&["del", "a", "--prev-kv"]), "1\na\n4\n");
    assert_eq!(ctl.ok(&["del", "b", "d"]), "2\n");
    assert_eq!(ctl.ok(&["get", "a"]), "");
}

#[test]
fn transaction_runs_the_branch_of_its_compares() {
    let ctl = memory();
    let ctl = (ctl.ctl(), ctl);
    let ctl = &ctl.0;
    ctl.ok(&["put", "k", "v"]);
    let txn = "value(\"k\") = \"v\"\nversion(\"none\") = \"0\"\n\nput k w\nget k\n\nget k\n\n";
    assert_eq!(ctl.ok_with(&["txn"], txn), "SUCCESS\n\nOK\n\nk\nw\n");
    assert_eq!(ctl.ok_with(&["txn"], txn), "FAILURE\n\nk\nw\n");
    let twice = "\nput x 1\nput x 2\n\n\n";
    let mut command = ctl.command(&["txn"]);
    let failed = std::process::Stdio::piped();
    let mut child = command.stdin(failed).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), twice.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("duplicate key given in txn request"));
}

#[test]
fn watch_delivers_history_then_new_events() {
    let orlop = memory();
    let ctl = orlop.ctl();
    ctl.ok(&["put", "p/a", "1"]);
    ctl.ok(&["put", "q", "x"]);
    ctl.ok(&["put", "p/a", "2"]);
    let mut watch = Background::start(&ctl, &["watch", "--prefix", "p/", "--rev", "2", "--prev-kv"]);
    let history: Vec<_> = (0..8).map(|_| watch.line()).collect();
    assert_eq!(history, ["PUT", "p/a", "1", "PUT", "p/a", "1", "p/a", "2"]);
    ctl.ok(&["del", "p/a"]);
    assert_eq!([watch.line(), watch.line(), watch.line(), watch.line()], ["DELETE", "p/a", "2", "p/a"]);
    ctl.ok(&["compaction", "4"]);
    let compacted = ctl.fails(&["watch", "p/a", "--rev", "2"]);
    assert!(compacted.contains("required revision has been compacted"), "{compacted}");
    assert!(ctl.fails(&["get", "p/a", "--rev", "2"]).contains("required revision has been compacted"));
    assert!(ctl.fails(&["get", "p/a", "--rev", "99"]).contains("required revision is a future revision"));
}

#[test]
fn leases_are_granted_kept_alive_listed_and_revoked() {
    let orlop = memory();
    let ctl = orlop.ctl();
    let granted = ctl.ok(&["lease", "grant", "100"]);
    let id = granted.split_whitespace().nth(1).unwrap().to_owned();
    assert!(granted.contains("TTL(100s)"), "{granted}");
    ctl.ok(&["put", "held", "x", "--lease", &id]);
    let seen = ctl.ok(&["lease", "timetolive", &id, "--keys"]);
    assert!(seen.contains("granted with TTL(100s)") && seen.contains("attached keys([held])"), "{seen}");
    assert!(ctl.ok(&["lease", "list"]).contains(&id));
    assert!(ctl.ok(&["lease", "keep-alive", "--once", &id]).contains("keepalived with TTL(100)"));
    assert!(ctl.ok(&["lease", "revoke", &id]).contains("revoked"));
    assert_eq!(ctl.ok(&["get", "held"]), "");
    assert!(ctl.fails(&["lease", "revoke", &id]).contains("requested lease not found"));
    assert!(ctl.fails(&["put", "k", "v", "--lease", "1234"]).contains("requested lease not found"));
}

#[test]
fn expired_lease_deletes_its_keys() {
    let orlop = memory();
    let ctl = orlop.ctl();
    let granted = ctl.ok(&["lease", "grant", "1"]);
    assert!(granted.contains("TTL(2s)"), "etcd grants two seconds at the least: {granted}");
    let id = granted.split_whitespace().nth(1).unwrap().to_owned();
    ctl.ok(&["put", "held", "x", "--lease", &id]);
    let mut watch = Background::start(&ctl, &["watch", "held", "--rev", "2"]);
    let lines: Vec<_> = (0..5).map(|_| watch.line()).collect();
    assert_eq!(lines, ["PUT", "held", "x", "DELETE", "held"]);
    assert!(ctl.ok(&["lease", "timetolive", &id]).contains("already expired"));
}

#[test]
fn maintenance_and_status_work() {
    let folder = tempfile::tempdir().unwrap();
    let orlop = Orlop::on(&folder.path().join("state.db"));
    let ctl = orlop.ctl();
    for n in 0..20 {
        ctl.ok(&["put", "k", &n.to_string()]);
    }
    assert_eq!(ctl.ok(&["compaction", "10", "--physical"]), "compacted revision 10\n");
    assert!(ctl.fails(&["compaction", "10"]).contains("required revision has been compacted"));
    assert!(ctl.ok(&["defrag"]).contains("Finished defragmenting"));
    let status = ctl.json(&["endpoint", "status"]);
    let status = &status[0]["Status"];
    assert_eq!((&status["version"], &status["leader"]), (&"3.6.11".into(), &status["header"]["member_id"]));
    assert!(status["dbSize"].as_i64().unwrap() >= status["dbSizeInUse"].as_i64().unwrap());
    assert_eq!(status["header"]["revision"], 21);
    let healthy = ctl.command(&["endpoint", "health"]).output().unwrap();
    assert!(healthy.status.success());
    let hash = |ctl: &crate::process::Ctl, rev| {
        ctl.json(&["endpoint", "hashkv", "--rev", rev])[0]["HashKV"]["hash"].clone()
    };
    let before = hash(&ctl, "21");
    ctl.ok(&["put", "k", "new"]);
    assert_eq!(hash(&ctl, "21"), before);
    assert_ne!(hash(&ctl, "0"), before);
    let members = ctl.json(&["member", "list"]);
    assert_eq!(members["members"][0]["clientURLs"][0], orlop.url);
    assert_eq!(ctl.ok(&["alarm", "list"]), "");
    assert!(ctl.fails(&["auth", "enable"]).contains("root user does not exist"));
    assert!(ctl.ok(&["auth", "status"]).contains("Authentication Status: false"));
    assert_eq!(ctl.ok(&["user", "list"]), "");
}

#[test]
fn locks_and_elections_pass_to_the_next_waiter() {
    let orlop = memory();
    let ctl = orlop.ctl();
    assert_eq!(ctl.ok(&["lock", "door", "echo", "inside"]), "inside\n");
    let mut first = Background::start(&ctl, &["lock", "door"]);
    assert!(first.line().starts_with("door/"));
    let mut second = Background::start(&ctl, &["lock", "door"]);
    drop(first);
    assert!(second.line().starts_with("door/"));
    let mut leader = Background::start(&ctl, &["elect", "office", "me"]);
    assert!(leader.line().starts_with("office/"));
    assert_eq!(leader.line(), "me");
    assert_eq!(ctl.lines(&["elect", "-l", "office"], 2)[1], "me");
    drop(leader);
    assert_eq!(ctl.lines(&["elect", "office", "you"], 2)[1], "you");
}
