//! A database that is full.

use crate::process::Orlop;

#[test]
fn a_full_database_raises_the_alarm_until_somebody_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("sqlite://{}", folder.path().join("state.db").display());
    let orlop = Orlop::start(&["--endpoint", &endpoint, "--quota-backend-bytes", "300000"]);
    let ctl = orlop.ctl();
    let value = "x".repeat(20_000);
    let full = (0..30).find(|n| {
        let output = ctl.command(&["put", &format!("k{n}"), &value]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("mvcc: database space exceeded")
    });
    assert!(full.is_some(), "the quota is never reached");
    assert!(ctl.ok(&["alarm", "list"]).contains("alarm:NOSPACE"));
    assert!(ctl.fails(&["lease", "grant", "10"]).contains("database space exceeded"));
    assert!(!ctl.command(&["endpoint", "health"]).status().unwrap().success());
    // Reads and deletions go on; puts do not, even when there is room, until the alarm is taken down.
    // What the newest revision replaced stays readable, so the last key goes by itself.
    ctl.ok(&["del", "k1", "kz"]);
    let revision = ctl.json(&["del", "k0"])["header"]["revision"].to_string();
    ctl.ok(&["compaction", &revision, "--physical"]);
    assert!(ctl.fails(&["put", "small", "x"]).contains("database space exceeded"));
    assert!(ctl.ok(&["alarm", "disarm"]).contains("alarm:NOSPACE"));
    assert_eq!(ctl.ok(&["put", "small", "x"]), "OK\n");
    assert_eq!(ctl.ok(&["alarm", "list"]), "");
}
