//! Names and numbers of event types, pinned: neither is ever changed or used again.

use std::collections::BTreeSet;

use events::Event;
use events::event::EventType;

/// As landed. Lines are only ever added.
const PINNED: &str = "\
1 LeaseAcquired
2 LeaseRenewed
3 LeaseReleased
4 LeaseExpired
5 LeaseRevoked
6 LeaseFenced
7 RunCloseRequested
8 RunClosed
20 EnvironmentRequested
21 EnvironmentProvisioned
22 EnvironmentProvisionFailed
23 EnvironmentAdopted
24 EnvironmentTeardownRequested
25 EnvironmentTeardownFailed
26 EnvironmentDestroyed
27 EnvironmentSuspected
28 EnvironmentPooled
40 CommandAccepted
41 CommandStarted
42 CommandKillRequested
43 KillEnforced
44 CommandFinished
45 CommandInterrupted
60 WorkspaceFileWritten
61 WorkspaceFileRemoved
70 BridgeSessionOpened
71 BridgeCallReceived
72 BridgeCallDenied
73 BridgeCallHeld
74 BridgeCallApproved
75 BridgeCallRefused
76 BridgeCallHoldTimedOut
77 BridgeCallCompleted
78 BridgeSessionClosed
90 ArtifactCommitted
91 ArtifactDeleted
92 ArtifactIntegrityFailed
93 RunExported
100 EgressDecided
101 EgressClosed
102 EgressDecisionsCoalesced
120 ServiceStarted
121 OrphanDeleted
122 ProjectionRebuilt
123 ErasurePerformed
124 RetentionApplied
125 LogRestored
126 SigningKeyRotated
127 TokenIssued
128 TokenRevoked
129 AccessDenied
";

#[test]
fn the_registry_is_the_pinned_list() {
    let registered: String = EventType::ALL.iter().map(|kind| format!("{} {kind}\n", kind.id())).collect();
    assert_eq!(registered, PINNED);
}

#[test]
fn names_and_numbers_are_unique_and_lead_back_to_their_type() {
    let names: BTreeSet<_> = EventType::ALL.iter().map(|kind| kind.name()).collect();
    let ids: BTreeSet<_> = EventType::ALL.iter().map(|kind| kind.id()).collect();
    assert_eq!((names.len(), ids.len()), (EventType::ALL.len(), EventType::ALL.len()));
    for kind in EventType::ALL {
        assert_eq!(EventType::from_name(kind.name()), Some(*kind));
        assert_eq!(EventType::from_id(kind.id()), Some(*kind));
        assert_eq!(kind.schema(), 1);
    }
    assert_eq!(EventType::from_name("leaseAcquired"), None);
    assert_eq!(EventType::from_id(0), None);
}

#[test]
fn every_payload_is_registered_under_its_own_name() {
    let payloads: BTreeSet<_> = Event::TYPES.iter().copied().collect();
    assert_eq!(payloads.len(), Event::TYPES.len());
    assert!(payloads.is_subset(&EventType::ALL.iter().copied().collect()));
}
