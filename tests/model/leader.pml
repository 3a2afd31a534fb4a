/* Leadership by lease with fenced writes (docs/protocol.md 4.8, rendezvous/ha/leader_lease and etcd_store) as a
 * model for spin. docs/explorer.md says what it covers; model_test.cc runs it. Assertions are numbered as there.
 *
 * A paused server makes no step. Time passes in sixths of the lease's time to live.
 *
 * With LIVENESS the world eventually becomes calm: from then on etcd answers, live servers are not paused, and at least
 * one is alive. Each due step is then made before time passes, within a sixth of the time to live. */

#ifndef S
#define S 3 /* servers, at most MOST */
#endif
#ifndef LEADERS
#define LEADERS 3 /* elections, one after the other */
#endif
#ifndef WRITES
#define WRITES 3 /* rounds that are assigned */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1 /* a write is sent again, and etcd may apply the first copy later */
#endif
#define MOST 3
#define TTL 6
#define OWN 4 /* a leader stops acting that long after it sent its last renewal */

#define FOLLOWS 0
#define CAMPAIGNS 1
#define READS 2
#define LEADS 3
#define DEAD 4 /* or paused for good */

/* ---- etcd */
byte holder;      /* epoch of the leader's key; 0: none */
byte latest;      /* epoch of the latest leader */
byte left;        /* until the key's lease may expire */
byte record;      /* last round in the record */
byte writes;      /* applied writes */
chan net = [2] of { byte, byte, byte, byte }; /* epoch, writes before, round, try */

/* ---- servers */
byte state[MOST];
byte epoch[MOST];
byte own[MOST];   /* remaining time in which it may act */
bit asked[MOST];  /* a renewal is under way */
bit kept[MOST];   /* etcd has renewed the lease, the answer is under way */
byte age[MOST];   /* of the renewal */
byte round[MOST]; /* last round that it knows of */
byte seen[MOST];  /* writes before its next one */
bit writing[MOST];
bit sent[MOST];
byte try[MOST];
byte answer[MOST];/* to its write: 0 none, 1 written, 2 another server leads */

/* ---- ghost variables */
byte told;        /* last round that a launcher received */
byte timeouts;
bit calm;         /* see above */

#define MAY_ACT(i) (state[i] == LEADS && own[i] > 0)
/* Servers are identical: of the followers, only the first makes a step. */
#define NEXT(i) (state[i] == FOLLOWS && (i == 0 || state[(i + MOST - 1) % MOST] != FOLLOWS))
/* If a wrong protocol needs more and more elections, spin finds that no server leads when these are used up. */
#define MAY_ELECT (holder == 0 && (latest < LEADERS || (calm && latest < LEADERS + 2)))
#define LOST(i) (own[i] == 0 || holder != epoch[i])

/* Steps of a server within a sixth of the time to live, when calm. */
#define DUE(i) ((NEXT(i) && MAY_ELECT) || (state[i] == CAMPAIGNS && own[i] < OWN) || state[i] == READS || \
  (state[i] == LEADS && (LOST(i) || (asked[i] && age[i] > 0) || (!asked[i] && own[i] < OWN))))
#define OF(i, condition) (i < S && condition(i))
#define ANY(condition) (OF(0, condition) || OF(1, condition) || OF(2, condition))

#ifdef LIVENESS
/* 4: a server leads again and continues; and time passes. */
ltl leads { [] (calm -> ([]<> !ANY(DUE) && <>[] ANY(MAY_ACT))) }
#endif

inline clear(i) {
  state[i] = FOLLOWS; epoch[i] = 0; own[i] = 0; asked[i] = 0; kept[i] = 0; age[i] = 0; round[i] = 0; seen[i] = 0;
  writing[i] = 0; sent[i] = 0; try[i] = 0; answer[i] = 0
}

/* Sorts the servers, so that spin sees each situation once: followers are last, the others in the order of their
 * leases. */
inline begin_anew(i) {
  for (k : i .. S - 1) {
    j = k + 1;
    if
    :: j < S ->
      state[k] = state[j]; epoch[k] = epoch[j]; own[k] = own[j]; asked[k] = asked[j]; kept[k] = kept[j];
      age[k] = age[j]; round[k] = round[j]; seen[k] = seen[j]; writing[k] = writing[j]; sent[k] = sent[j];
      try[k] = try[j]; answer[k] = answer[j]
    :: else -> clear(k)
    fi
  }
  j = 0; k = 0
}

inline tell(i) {
#ifndef MISTAKE_TELLS_BEFORE_WRITTEN
  assert(record >= round[i]); /* 3: a round that a launcher received is in the record */
#endif
  if :: round[i] > told -> told = round[i] :: else fi /* a paused server may send it late */
}

proctype server(byte me) {
  byte j, k;
end:
  do
  :: d_step { NEXT(me) && MAY_ELECT -> /* its lease is granted */
       state[me] = CAMPAIGNS; own[me] = OWN;
#ifdef MISTAKE_READS_EARLY
       round[me] = record; seen[me] = writes
#endif
     }
  :: d_step { state[me] == CAMPAIGNS && MAY_ELECT ->
       latest++; holder = latest; left = TTL; epoch[me] = latest; state[me] = READS }
  :: d_step { state[me] == CAMPAIGNS && (!calm || own[me] == 0 || holder) ->
#ifndef MISTAKE_CAMPAIGNS_ONCE
       begin_anew(me)
#else
       state[me] = DEAD
#endif
     }
  :: d_step { state[me] == READS && holder == epoch[me] ->
#ifndef MISTAKE_READS_EARLY
       round[me] = record; seen[me] = writes;
#endif
       assert(round[me] >= told); /* 3 */
       state[me] = LEADS
     }
  :: d_step { (state[me] == READS || state[me] == LEADS) && own[me] > 0 && !asked[me] && (!calm || own[me] < OWN) ->
       asked[me] = 1; kept[me] = 0; age[me] = 0 }
  :: d_step { asked[me] && !kept[me] && holder == epoch[me] -> kept[me] = 1; left = TTL }
  :: d_step { kept[me] && own[me] > 0 -> /* the answer arrives */
#ifdef MISTAKE_COUNTS_FROM_ANSWER
       own[me] = OWN;
#else
       if :: OWN - age[me] > own[me] -> own[me] = OWN - age[me] :: else fi;
#endif
       asked[me] = 0; kept[me] = 0; age[me] = 0
     }
  :: d_step { asked[me] && !calm -> asked[me] = 0; kept[me] = 0; age[me] = 0 } /* no answer */
  :: d_step { (state[me] == READS || state[me] == LEADS) && (!calm || LOST(me)) ->
       begin_anew(me) /* it steps down or is killed, and is restarted */
     }
  :: d_step { MAY_ACT(me) && !calm -> assert(holder == epoch[me] && latest == epoch[me]) } /* 1: one server may act */
  :: d_step { MAY_ACT(me) && !writing[me] && round[me] < WRITES ->
       writing[me] = 1; round[me]++;
#ifdef MISTAKE_TELLS_BEFORE_WRITTEN
       tell(me)
#endif
     }
  :: d_step { writing[me] && !sent[me] && nfull(net) -> net ! epoch[me], seen[me], round[me], try[me]; sent[me] = 1 }
  :: d_step { sent[me] && !answer[me] && timeouts < TIMEOUTS -> timeouts++; try[me]++; sent[me] = 0;
#ifdef MISTAKE_TIMEOUT_IS_WRITTEN
       writing[me] = 0; seen[me]++; tell(me)
#endif
     }
  :: d_step { answer[me] == 1 ->
#ifndef MISTAKE_TELLS_BEFORE_WRITTEN
       tell(me);
#endif
       seen[me]++; writing[me] = 0; sent[me] = 0; try[me] = 0; answer[me] = 0
     }
  :: d_step { answer[me] == 2 -> begin_anew(me) }
  od
}

/* etcd receives any of the copies in flight next. */
proctype etcd() {
  byte e, before, r, t, result, k;
end:
  do
  :: atomic { nempty(net) ->
       net ? e, before, r, t;
       if :: nempty(net) -> net ! e, before, r, t; net ? e, before, r, t :: true fi;
       d_step {
         result = 2;
         if
#ifndef MISTAKE_NO_FENCE
         :: e != holder -> skip
#endif
#ifndef MISTAKE_ANY_ORDER
         :: before != writes -> if :: e == holder && writes == before + 1 -> result = 1 :: else fi
#endif
         :: else ->
           assert(e == latest); /* 2: no write of an older leader is applied */
           assert(r > record);  /* 2: nor one that is older than the record */
           record = r; writes++; result = 1
         fi;
         for (k : 0 .. S - 1) {
           if :: epoch[k] == e && sent[k] && try[k] == t && seen[k] == before -> answer[k] = result :: else fi
         }
         k = 0; e = 0; before = 0; r = 0; t = 0; result = 0
       }
     }
#ifndef MISTAKE_KEY_WITHOUT_LEASE
  :: d_step { holder && left == 0 -> holder = 0 }
#endif
  od
}

proctype time() {
  byte k;
end:
  do
  :: d_step { !calm || !ANY(DUE) ->
       if :: left > 0 -> left-- :: else fi;
       for (k : 0 .. S - 1) {
         if :: own[k] > 0 -> own[k]-- :: else fi;
         /* A late answer changes nothing for this server, and only delays the others. */
         if :: asked[k] && own[k] -> age[k]++ :: else -> asked[k] = 0; kept[k] = 0; age[k] = 0 fi
       }
       k = 0
     }
  od
}

#ifdef LIVENESS
proctype calms() {
  byte k, dead;
  atomic {
    for (k : 0 .. S - 1) {
      if
      :: skip
      :: dead < S - 1 -> dead++; clear(k); state[k] = DEAD
      fi
    }
    k = 0; dead = 0;
    calm = 1
  }
}
#endif

init {
  byte k;
  atomic {
    run etcd(); run time();
#ifdef LIVENESS
    run calms();
#endif
    for (k : 0 .. S - 1) { run server(k) }
    k = 0
  }
}
